#include "velo/report/stall_report.h"

#include <iterator>

#include "velo/base/text.h"
#include "velo/os/life_watch.h"
#include "velo/wire/packet.h"

namespace velo {
namespace {

using base::append;
using base::number;

double seconds(uint64_t ns) {
    return static_cast<double>(ns) / 1e9;
}

void add_process(std::string& text, const PeerReport& peer) {
    switch (peer.process.pid_known_here ? base::process_state(peer.process.pid) : base::ProcessState::kRuns) {
        case base::ProcessState::kEnded: text += ", has ended"; break;
        case base::ProcessState::kStopped: text += ", is stopped by a signal or a debugger"; break;
        case base::ProcessState::kRuns: break;
    }
    constexpr uint64_t kRecentlyNs = 1'000'000'000;
    if (peer.seen_ns != UINT64_MAX && peer.seen_ns >= kRecentlyNs) {
        append(text, ", was last in MPI %.1f s ago", seconds(peer.seen_ns));
    }
}

void add_ring(std::string& text, const PeerReport::Ring& ring) {
    if (!ring.made) {
        text += "      there is no ring to it yet: it has not taken the first contact\n";
        return;
    }
    const shm::RingFill& fill = ring.fill;
    append(text,
           "      ring to it: %llu of %u lines and %llu of %u bytes not read (positions: lines %llu written, "
           "%llu "
           "read; bytes %llu, %llu)\n",
           number(fill.lines_written - fill.lines_read), ring.lines,
           number(fill.body_written - fill.body_read), ring.bytes, number(fill.lines_written),
           number(fill.lines_read), number(fill.body_written), number(fill.body_read));
}

void add_credits(std::string& text, const PeerReport::Credits& credits, bool queued) {
    if (!credits.used) return;
    if (credits.by_contact) {
        text += "      owns no slots at it; what goes there needs one of its contact slots\n";
        return;
    }
    append(text, "      credits at it: %u", credits.available);
    if (credits.quota != 0) append(text, " of %u", credits.quota);
    if (queued) append(text, ", and the rest of the first message needs %u", credits.needed);
    text += queued && credits.available == 0 ? ": waits for credits\n" : "\n";
}

void add_mailbox(std::string& text, const DeviceReport& device) {
    append(text, "      its mailbox: %llu of %u slots not read (positions: %llu written, %llu read)\n",
           number(device.mailbox_written - device.mailbox_read), device.mailbox_slots, number(device.mailbox_written),
           number(device.mailbox_read));
    if (device.held_packets != 0) {
        append(text, "      %u packets to it are held back by the device\n", device.held_packets);
    }
    if (device.operations != 0) {
        append(text, "      %u operations on it are with the device\n", device.operations);
    }
}

void add_reservations(std::string& text, const PeerReport::Rail& rail) {
    using State = PeerReport::Reservation::State;
    for (const PeerReport::Reservation& each : rail.reservations) {
        if (each.state == State::kNone) continue;
        text += each.state == State::kAsked  ? "; asked of "
                : each.state == State::kHeld ? "; set aside by "
                                             : "; set aside for ";
        each.known ? append(text, "rank %u", each.rank)
                   : append(text, "a process that this one has not connected to");
        text += each.state == State::kGranted ? ", for its " : ", for ";
        text += each.puts ? "puts" : "gets";
    }
}

void add_rails(std::string& text, const std::vector<PeerReport::Rail>& rails) {
    for (const PeerReport::Rail& rail : rails) {
        append(text, "      rail %u: %u operations on it, %llu bytes", rail.rail, rail.own.count,
               number(rail.own.bytes));
        if (rail.others.count != 0) {
            append(text, "; %u on others, %llu bytes, most of them on rank %u", rail.others.count,
                   number(rail.others.bytes), rail.holder);
        }
        add_reservations(text, rail);
        if (rail.out) append(text, "; out of use, tried again in %.1f s", seconds(rail.retry_ns));
        text += "\n";
    }
}

void add_operations(std::string& text, const WaitingOperations& operations, const char* what) {
    if (operations.count == 0) return;
    append(text, "    %u %s", operations.count, what);
    if (operations.bytes != 0) append(text, ", %llu bytes", number(operations.bytes));
    text += "\n";
}

void add_copies(std::string& text, const std::vector<PeerReport::Copies>& all) {
    constexpr const char* kWays[] = {"in the ring", "by direct copies", "in the ring past the caches"};
    static_assert(std::size(kWays) == kCoopMethods);
    for (const PeerReport::Copies& copies : all) {
        append(text, "      blocks of %u bytes and more%s%s%s are fetched %s (changed %u times):", copies.bytes,
               copies.both ? ", while it fetches too" : "", copies.far ? ", from a far core" : "",
               copies.both || copies.far ? "," : "", kWays[static_cast<size_t>(copies.method)], copies.switches);
        for (size_t way = 0; way < kCoopMethods; ++way) {
            append(text, "%s %s ", way == 0 ? "" : ",", kWays[way]);
            if (copies.ps_a_byte[way] == 0) {
                text += "not measured";
            } else {
                append(text, "%u ps a byte", copies.ps_a_byte[way]);
            }
        }
        text += "\n";
    }
}

void add_waits(std::string& text, const PeerReport& peer) {
    const PeerReport::Queue& queue = peer.queue;
    const PeerReport::Operations& operations = peer.operations;
    if (queue.messages != 0) {
        const char* classes[] = {"Open MPI's", "engine's", "credits", "unknown"};
        append(text,
               "    %u messages queued, %llu bytes; the first one (%s, tag %u) has sent %u of %u bytes\n",
               queue.messages, number(queue.bytes), classes[queue.first_class & 3], queue.first_tag, queue.first_done,
               queue.first_bytes);
    }
    add_operations(text, operations.gets, "gets not fully started");
    add_operations(text, operations.puts, "puts not fully started");
    add_operations(text, operations.device_chunks, "RMA operations wait for the device's notification");
    add_operations(text, operations.pulls, "chunks asked for (pull) wait for their data (pull data)");
    add_operations(text, operations.pushes, "chunks sent (put data) wait for their end (done)");
    add_operations(text, operations.coop_blocks, "blocks fetched jointly wait for data of its part (joint data)");
    add_operations(text, operations.atomics, "atomics wait for their answer");
    add_operations(text, operations.assists, "blocks that it fetches from here have parts left to send");
    if (peer.credits.deferred != 0) append(text, "    %u credits for it cannot leave\n", peer.credits.deferred);
    if (peer.process.path == VELO_PATH_ON_NODE) {
        add_ring(text, peer.ring);
        add_copies(text, peer.copies);
    } else {
        add_credits(text, peer.credits, queue.messages != 0);
        add_mailbox(text, peer.device);
        add_rails(text, peer.rails);
    }
}

void add_name(std::string& text, const PeerReport& peer) {
    const char* path = peer.process.path == VELO_PATH_ON_NODE ? "on-node ring" : "VELO packets";
    if (peer.process.known) {
        append(text, "rank %u (pid %d, %s", peer.process.rank, peer.process.pid, path);
        add_process(text, peer);
    } else {
        append(text, "a process that this one has not connected to (%s", path);
    }
    text += ")";
}

void add_unconsumed(std::string& text, const StallReport& report) {
    std::string lines;
    const DeviceReport& own = report.device;
    if (own.mailbox_written != own.mailbox_read) {
        append(lines, "    its mailbox: %llu of %u slots (positions: %llu written, %llu read)\n",
               number(own.mailbox_written - own.mailbox_read), own.mailbox_slots, number(own.mailbox_written),
               number(own.mailbox_read));
    }
    if (report.unanswered_contacts != 0) {
        append(lines, "    %zu first contacts that could not be answered\n", report.unanswered_contacts);
    }
    for (const PeerReport& peer : report.peers) {
        if (!peer.unconsumed()) continue;
        lines += "    ";
        add_name(lines, peer);
        lines += ":";
        if (peer.ring.unread) lines += " messages in its ring";
        if (peer.partial_bytes != 0) {
            append(lines, " %u bytes of a message whose rest has not come", peer.partial_bytes);
        }
        lines += "\n";
    }
    if (!lines.empty()) text += "  rank " + std::to_string(report.rank) + " has not consumed:\n" + lines;
}

}  // namespace

std::string to_text(const StallReport& report) {
    std::string text;
    if (report.asked_for) {
        append(text, "velo: rank %u waits for, as asked:\n", report.rank);
    } else {
        append(text, "velo: rank %u has made no progress for %.1f s and waits for:\n", report.rank,
               seconds(report.stall_ns));
    }
    bool any = false;
    for (const PeerReport& peer : report.peers) {
        if (!peer.waited_for()) continue;
        any = true;
        text += "  ";
        add_name(text, peer);
        if (peer.age_ns != 0) append(text, ", for %.1f s", seconds(peer.age_ns));
        text += ":\n";
        add_waits(text, peer);
        if (peer.credits.retrieved != 0) {
            append(text, "      credits kept for it: %u, returned at %u\n", peer.credits.retrieved,
                   peer.credits.threshold);
        }
    }
    if (!any) text += "  nothing of it is pending in velo\n";
    add_unconsumed(text, report);
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text;
}

}  // namespace velo
