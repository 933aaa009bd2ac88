/// Bodies of velo/matching/match_sending.h, for what compiles them for a system (velo/engine/instances.h).
#pragma once

#include "velo/matching/match_sending.h"

namespace velo {

template <class Core>
bool MatchSending<Core>::try_send(MatchPeer& to, const match::Envelope& envelope, const void* data, uint64_t bytes) {
    if (bytes > std::min(to.eager_bytes_max, kShortBytesMax) || peers_.is_self(to) ||
        !to.out.take_grant(bytes, false))
        return false;
    const auto head = match::EagerHeader::of(envelope, 0);
    const MessageParts parts = {.header = &head,
                                .payload = data,
                                .header_bytes = sizeof head,
                                .payload_bytes = static_cast<uint32_t>(bytes)};
    if (queue_.try_send(*to.peer, parts, static_cast<uint8_t>(WireTag::kEager)) != Status::kOk) {
        to.out.give_back_grant(bytes, false);
        return false;
    }
    ++core_.counters.match_tx_eager;
    return true;
}

template <class Core>
bool MatchSending<Core>::send(MatchPeer& to, const match::Envelope& envelope, const void* data, uint64_t bytes,
                             bool synchronous, velo_match_send_t& face, volatile bool* waited) {
    auto& send = *new (&face) MatchSend;
    send.waited = waited;
    send.to = &to;
    send.data = data;
    send.bytes = bytes;
    send.synchronous = synchronous;
    send.fetched = is_fetched(to, bytes);
    if (bytes > to.eager_bytes_max || send.fetched || !to.out.take_grant(bytes, synchronous)) {
        send.state = MatchSend::State::kWaits;
        send.number = numbers_.take(send);
        to.out.add(send, envelope);
        pump(to);
        if (fate_of(send) != Fate::kWaits) [[unlikely]]
            settle_one(send);
        return false;
    }
    ++core_.counters.match_tx_eager;
    const auto head = match::EagerHeader::of(envelope, synchronous ? match::EagerHeader::kTellsNumber : 0);
    std::array<std::byte, sizeof head + sizeof send.number> header;
    uint32_t header_bytes = sizeof head;
    std::memcpy(header.data(), &head, sizeof head);
    send.state = synchronous ? MatchSend::State::kUnmatched : MatchSend::State::kEager;
    if (synchronous) {
        send.number = numbers_.take(send);
        std::memcpy(header.data() + sizeof head, &send.number, sizeof send.number);
        header_bytes += sizeof send.number;
    }
    if (peers_.is_self(to)) {
        peers_.loop(WireTag::kEager, {header.data(), header_bytes}, bytes_of(data, bytes));
        return !synchronous;
    }
    leave(send, WireTag::kEager, {header.data(), header_bytes});
    if (send.leaving || synchronous) return false;
    tell_choice(send);
    return true;
}

template <class Core>
void MatchSending<Core>::send_ended(velo_send_t& message, Status status) {
    auto& left = static_cast<MatchSend::Message&>(message);
    MatchSend& send = *left.send;
    messages_.give_back(left);
    VELO_DCHECK(send.leaving && leaving_ != 0, "a message leaves twice, of %u", leaving_);
    send.leaving = false;
    --leaving_;
    if (status != Status::kOk) return settle_one(send);
    if (send.state == MatchSend::State::kEager) return send_done(send);
    // Meanwhile its receiver may have left.
    settle_one(send);
}

template <class Core>
void MatchSending<Core>::settle(MatchPeer& to) {
    numbers_.for_each([&](MatchSend& send) {
        if (send.to == &to) settle_one(send);
    });
    // Messages that wait were ended with their requests, which may be gone.
    if (peers_.host() != HostState::kPresent) to.out = {};
}

/// Ends a message whose peer has left or ended. Of a peer that has failed the host has heard, and its messages go on
/// waiting.
template <class Core>
void MatchSending<Core>::settle_one(MatchSend& send) {
    if (send.leaving) return;  // send_ended() follows
    const Fate fate = fate_of(send);
    if (fate == Fate::kLost) return core_.peer_ends->report_lost(send.to->peer, Owed::kReceive, peers_.host());
    if (fate == Fate::kVoid && peers_.host() != HostState::kPresent) send_done(send);
}

template <class Core>
void MatchSending<Core>::pump(MatchPeer& to) {
    using Next = match::WaitingSends::Machine::Next;
    for (;;) {
        const Next next = to.out.waiting().next(kMatchWindow);
        switch (next.kind) {
            case Next::Kind::kNothing: return;
            case Next::Kind::kEnd: peers_.tell(to, WireTag::kEnd, match::EndHeader{next.age}); break;
            case Next::Kind::kRequest: request(static_cast<MatchSend&>(*next.ref), next); break;
        }
    }
}

template <class Core>
void MatchSending<Core>::request(MatchSend& send, const match::WaitingSends::Machine::Next& next) {
    ++core_.counters.match_tx_requests;
    MatchPeer& to = *send.to;
    const match::Envelope& envelope = send.pending.envelope;
    // Data that is refused travels for nothing.
    const bool in_vain = to.refuses && !next.wanted && send.bytes > kRefusedBytesMax;
    const bool is_long = send.bytes > to.eager_bytes_max || send.fetched;
    const bool with_data = !is_long && !send.leaving && !in_vain;
    const bool with_handle = !with_data && is_long && !peers_.is_self(to) && expose(send);
    using Head = match::EagerHeader;
    const uint32_t flags = (send.synchronous ? Head::kTellsNumber : 0) | (next.first ? Head::kFirst : 0) |
                           (with_data ? Head::kHasData : 0) | (with_handle ? Head::kHasHandle : 0) |
                           static_cast<uint32_t>(std::bit_width(next.waiting - 1)) << Head::kWaitingShift;
    const match::RequestHeader header = {.head = match::EagerHeader::of(envelope, flags),
                                         .age = next.age,
                                         .number = send.number,
                                         .bytes = send.bytes};
    std::array<std::byte, sizeof header + sizeof(match::Place)> bytes;
    uint32_t header_bytes = sizeof header;
    std::memcpy(bytes.data(), &header, sizeof header);
    if (with_handle) {
        const match::Place place = send.place();
        std::memcpy(bytes.data() + header_bytes, &place, sizeof place);
        header_bytes += sizeof place;
    }
    if (!with_data) return peers_.tell_bytes(to, WireTag::kRequest, bytes.data(), header_bytes);
    if (peers_.is_self(to))
        return peers_.loop(WireTag::kRequest, {bytes.data(), header_bytes},
                                    bytes_of(send.data, send.bytes));
    leave(send, WireTag::kRequest, {bytes.data(), header_bytes});
}

/// Sends a message with all of its data, at once or by send_ended().
template <class Core>
void MatchSending<Core>::leave(MatchSend& send, WireTag tag, std::span<const std::byte> header) {
    MatchSend::Message& message = messages_.take();
    VELO_CHECK(header.size() <= message.header.size(), "a header is longer than all kinds of them");
    message.send = &send;
    std::memcpy(message.header.data(), header.data(), header.size());
    message.data[0] = message.header.data();
    message.bytes[0] = static_cast<uint32_t>(header.size());
    message.data[1] = send.data;
    message.bytes[1] = static_cast<uint32_t>(send.bytes);
    message.tag = static_cast<uint8_t>(tag);
    send.leaving = !queue_.queue_send(*send.to->peer, message, MessageClass::kHost, Origin::kMatchSend);
    leaving_ += send.leaving;
    if (!send.leaving) messages_.give_back(message);
}

template <class Core>
bool MatchSending<Core>::expose(MatchSend& send) {
    if (send.registered || peers_.is_self(*send.to)) return true;
    send.registered = registrations_.add(const_cast<void*>(send.data), send.bytes, kAccessRead,
                                               send.handle) == Status::kOk;
    return send.registered;
}

template <class Core>
void MatchSending<Core>::make_ready(MatchSend& send, uint64_t receive) {
    if (!expose(send)) return unready_.push_back({send.number, receive});
    peers_.tell(*send.to, WireTag::kReady, match::ReadyHeader{receive, send.place()});
}

template <class Core>
void MatchSending<Core>::send_done(MatchSend& send) {
    tell_choice(send);
    if (send.registered) registrations_.remove(send.handle);
    if (send.number != 0) numbers_.release(send.number);
    if (send.waited != nullptr) return core_.events.match_sent(*send.waited);
    core_.events.match_sent(send.face());
}

template <class Core>
void MatchSending<Core>::on_answer(MatchPeer& from, const std::byte* data, uint32_t bytes) {
    Answer answer;
    if (!match::read_header(answer, data, bytes)) return peers_.malformed();
    MatchSend* const send = find_send(from, answer.number);
    if (send == nullptr || send->state != MatchSend::State::kWaits) return peers_.malformed();
    on_grant(from, answer.grant.room());
    match::WaitingSends& waiting = from.out.waiting();
    if (answer.outcome == Answer::Outcome::kRefused) {
        if (!waiting.refused(*send, answer.age)) return peers_.malformed();
        ++core_.counters.match_refused;
        from.refuses = true;
        return pump(from);
    }
    const bool has_data = answer.outcome != Answer::Outcome::kDataless;
    // A refusal may be of an older age, and the request of this one still be leaving.
    if (send->leaving || (has_data && send->bytes > from.eager_bytes_max) || !from.out.accepted(*send))
        return peers_.malformed();
    if (!has_data) {
        send->state = MatchSend::State::kDataless;
    } else if (send->synchronous && answer.outcome != Answer::Outcome::kMatched) {
        send->state = MatchSend::State::kUnmatched;
    } else {
        send_done(*send);
    }
    pump(from);
}

template <class Core>
void MatchSending<Core>::on_offers(MatchPeer& from, const std::byte* data, uint32_t bytes) {
    match::OffersHeader header;
    decltype(match::Offers::Batch::receives) receives;
    if (!match::read_header(header, data, bytes) || header.count > receives.size() ||
        bytes != sizeof header + header.count * sizeof receives[0])
        return peers_.malformed();
    std::memcpy(receives.data(), data + sizeof header, header.count * sizeof receives[0]);
    match::WaitingSends& waiting = from.out.waiting();
    if (header.resend_all != 0) {
        from.refuses = false;
        waiting.resend_all(header.age);
    } else {
        waiting.offered(header.age, receives.data(), header.count);
    }
    pump(from);
}

template <class Core>
void MatchSending<Core>::on_clear_to_send(MatchPeer& from, const std::byte* data, uint32_t bytes) {
    match::ClearToSendHeader header;
    MatchSend* const send =
        match::read_header(header, data, bytes) ? find_send(from, header.number) : nullptr;
    if (send == nullptr || send->state != MatchSend::State::kDataless) return peers_.malformed();
    make_ready(*send, header.receive);
}

template <class Core>
void MatchSending<Core>::on_done(MatchPeer& from, const std::byte* data, uint32_t bytes) {
    match::DoneHeader header;
    MatchSend* const send =
        match::read_header(header, data, bytes) ? find_send(from, header.number) : nullptr;
    const bool expected =
        send != nullptr && !send->leaving &&
        (send->state == MatchSend::State::kDataless || send->state == MatchSend::State::kUnmatched);
    if (!expected) return peers_.malformed();
    send_done(*send);
}

}  // namespace velo
