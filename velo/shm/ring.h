/// The on-node ring: one direction of one pair of processes, single producer and single consumer.
///
/// Two areas. Short messages lie in `lines` of 64 bytes, contiguous behind a header word, so a message of up
/// to 56 bytes is one cache line and one line moves. A longer message has its first 56 bytes in one such line
/// and the rest in the deep byte area, with 56 free bytes before it: the consumer puts the beginning there
/// and hands up the whole, contiguous, without copying the rest. So it can look at a message's header while
/// the rest is on its way. Both areas are consumed in order, so a body's place follows from the bodies before
/// it and no offset travels.
///
/// A line may also hold two host's messages of up to 24 bytes, so that one line transfer moves both: the
/// first in its first half, with a flag that says that the other half, a cell with a header word of its own,
/// may hold the next one. The producer fills it if the very next message is short enough too, and else leaves
/// it empty for good. So the consumer looks at the cell, then at the next line, and when that holds something
/// at the cell once more. Until then it keeps the line: the producer could otherwise lap it and write over
/// what is there.
///
/// A line whose header word is not 0 holds a message. Bytes that earlier laps left in the lines may look like
/// anything, so before a message is published, the line behind it has been cleared. The producer clears lines
/// well ahead, after it has published: clearing the next one just before costs every message the time of one
/// more line transfer (docs/design-choices.md). It learns what was consumed from the consumer's progress
/// words, and looks only when its own view has no space left.
///
/// The body area is deep, because lines that have left the reader's cache are written fastest. But each page of it that
/// is used for the first time costs as much as several messages, and stays. So until the ring has carried enough to be
/// worth its memory, the producer begins a new lap where the next body would need a further page, if all bodies before
/// it have been read.
///
/// Owner: the producer, in whose segment the ring lies. Neither side trusts what the other one wrote: headers
/// are checked against the geometry that this side knows, and progress against what was produced.
#pragma once

#include "velo/shm/ring_consumer.h"
#include "velo/shm/ring_producer.h"
