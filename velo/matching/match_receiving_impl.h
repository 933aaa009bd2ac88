/// Bodies of velo/matching/match_receiving.h, for what compiles them for a system (velo/engine/instances.h).
#pragma once

#include "velo/matching/match_receiving.h"

namespace velo {

template <class Core>
void MatchReceiving<Core>::on_longer_eager(MatchPeer& from, const std::byte* data, uint32_t bytes) {
    const match::Arrival arrival = plain_arrival(data, bytes);
    match::PostedReceive* const fit = receiver_->match_eager(from.in, arrival);
    if (fit == nullptr) [[unlikely]]
        return on_other_eager(from, data, bytes);
    auto& receive = static_cast<MatchReceive&>(*fit);
    matched(receive, MatchReceive::State::kDone, arrival.envelope, arrival.bytes);
    copy_in(receive, 0, arrival.data, arrival.data_bytes);
    tell_if_due(from);
    matched_now(receive);
}

template <class Core>
void MatchReceiving<Core>::on_other_eager(MatchPeer& from, const std::byte* data, uint32_t bytes) {
    if (bytes < sizeof(match::EagerHeader)) return peers_.malformed();
    const auto head = match::EagerHeader::read(data);
    uint64_t number = 0;
    uint32_t header_bytes = sizeof head;
    const bool tells = (head.flags() & match::EagerHeader::kTellsNumber) != 0;
    if (tells) {
        if (bytes < sizeof head + sizeof number) return peers_.malformed();
        std::memcpy(&number, data + sizeof head, sizeof number);
        header_bytes += sizeof number;
    }
    const match::Arrival arrival = {.envelope = head.envelope(),
                                    .number = tells ? number | kTellsMatch : 0,
                                    .bytes = bytes - header_bytes,
                                    .data = data + header_bytes,
                                    .data_bytes = bytes - header_bytes,
                                    .keeps_number = tells};
    if (!match::is_of_message(arrival.envelope)) return peers_.malformed();
    const match::Receiver::Result result = receiver_->on_eager(from.in, arrival);
    if (result.outcome == Outcome::kUngranted) return peers_.malformed();
    if (result.outcome != Outcome::kMatched) {
        if (tells) not_matched(from);
        return;
    }
    auto& receive = static_cast<MatchReceive&>(*result.receive);
    matched(receive, MatchReceive::State::kDone, arrival.envelope, arrival.bytes);
    copy_in(receive, 0, arrival.data, arrival.data_bytes);
    tell_if_due(from);
    if (tells) peers_.tell(from, WireTag::kDone, match::DoneHeader{number});
    peers_.is_self(from) ? receive_done(receive) : matched_now(receive);
}

template <class Core>
void MatchReceiving<Core>::on_request(MatchPeer& from, const std::byte* data, uint32_t bytes) {
    using Head = match::EagerHeader;
    match::RequestHeader header;
    if (!match::read_header(header, data, bytes) || from.replies >= kRepliesMax)
        return peers_.malformed();
    const std::byte* const behind = data + sizeof header;
    const uint64_t bytes_behind = bytes - sizeof header;
    const bool has_data = (header.head.flags() & Head::kHasData) != 0;
    const bool has_handle = (header.head.flags() & Head::kHasHandle) != 0;
    const bool tells = (header.head.flags() & Head::kTellsNumber) != 0;
    if (!match::is_of_message(header.head.envelope()) || header.number == 0 ||
        (header.number & kTellsMatch) != 0 || (has_data && bytes_behind != header.bytes) ||
        (has_handle && (has_data || bytes_behind != sizeof(match::Place))) ||
        (!has_data && !has_handle && bytes_behind != 0))
        return peers_.malformed();
    const match::Arrival arrival = {.envelope = header.head.envelope(),
                                    .number = header.number | (tells ? kTellsMatch : 0),
                                    .bytes = header.bytes,
                                    .data = has_data ? behind : nullptr,
                                    .data_bytes = has_data ? static_cast<uint32_t>(header.bytes) : 0,
                                    .handle = behind,
                                    .handle_bytes = has_handle ? uint32_t{sizeof(match::Place)} : 0,
                                    .keeps_number = tells,
                                    .waiting_width =
                                        static_cast<uint8_t>(header.head.flags() >> Head::kWaitingShift)};
    const match::Receiver::Result result =
        receiver_->on_request(from.in, arrival, header.age, (header.head.flags() & Head::kFirst) != 0);
    Answer answer = {.number = header.number, .age = header.age};
    const bool whole = arrival.data_bytes == arrival.bytes;
    switch (result.outcome) {
        case Outcome::kMatched:
            answer.outcome = whole ? Answer::Outcome::kMatched : Answer::Outcome::kDataless;
            break;
        case Outcome::kRecorded:
            answer.outcome = whole ? Answer::Outcome::kAccepted : Answer::Outcome::kDataless;
            break;
        case Outcome::kDataless: answer.outcome = Answer::Outcome::kDataless; break;
        default: answer.outcome = Answer::Outcome::kRefused; break;
    }
    if (answer.outcome != Answer::Outcome::kRefused) receiver_->grant_more(from.in, from.granted, header.bytes);
    answer.grant = match::GrantHeader::of(from.in.granted.take_untold());
    peers_.tell(from, WireTag::kAnswer, answer, true);
    offers_are_due();
    if (result.outcome != Outcome::kMatched) return not_matched(from);
    auto& receive = static_cast<MatchReceive&>(*result.receive);
    if (whole) {
        matched(receive, MatchReceive::State::kDone, arrival.envelope, header.bytes);
        copy_in(receive, 0, arrival.data, arrival.data_bytes);
        return receive_done(receive);
    }
    matched(receive, from, arrival.envelope, header.number, header.bytes);
    match::Place place;
    if (has_handle) std::memcpy(&place, behind, sizeof place);
    if ((has_handle || peers_.is_self(from)) && fitting(receive) != 0) return fetch(receive, place);
    if (ask_for_data(receive)) receive_done(receive);
}

/// The sender of a message waits for its receive.
template <class Core>
void MatchReceiving<Core>::not_matched(MatchPeer& from) {
    from.asks = true;
    if (peers_.host() != HostState::kPresent) [[unlikely]]
        peers_.tell_left(from);
}

/// Data that a receive has asked the sender for is lost. Messages that were refused are not: their sender has stayed
/// for them.
template <class Core>
void MatchReceiving<Core>::closed(MatchPeer& peer) {
    const bool asked = asking_.any_of([&peer](const MatchReceive& receive) { return receive.from == &peer; });
    receiver_->closed(peer.in);
    offers_due_ = true;
    if (asked) core_.peer_ends->report_lost(peer.peer, Owed::kSource, peers_.host());
}

template <class Core>
bool MatchReceiving<Core>::ask_for_data(MatchReceive& receive) {
    if (fitting(receive) == 0) {
        peers_.tell(*receive.from, WireTag::kDone, match::DoneHeader{receive.number});
        return true;
    }
    const uint64_t number = asking_.take(receive);
    if (source_gone(receive)) return false;
    peers_.tell(*receive.from, WireTag::kClearToSend, match::ClearToSendHeader{receive.number, number});
    return false;
}

template <class Core>
void MatchReceiving<Core>::on_ready(MatchPeer& from, const std::byte* data, uint32_t bytes) {
    match::ReadyHeader header;
    MatchReceive* const receive =
        match::read_header(header, data, bytes) ? asking_.find(header.receive) : nullptr;
    if (receive == nullptr || receive->from != &from) return peers_.malformed();
    asking_.release(header.receive);
    fetch(*receive, header.place);
}

template <class Core>
void MatchReceiving<Core>::fetch(MatchReceive& receive, const match::Place& place) {
    if (peers_.is_self(*receive.from)) {
        base::copy_long(receive.buffer, sending_.data_of(*receive.from, receive.number), fitting(receive));
        return has_data(receive, Status::kOk);
    }
    if (source_gone(receive)) return;
    MatchReceive::Fetch& fetch = fetches_.take();
    ++fetching_;
    fetch = {};
    fetch.receive = &receive;
    fetch.kind = VELO_RMA_GET;
    fetch.owner = 1;
    fetch.local = receive.buffer;
    fetch.remote_address = place.address;
    fetch.remote = place.handle;
    fetch.bytes = fitting(receive);
    transfers_.post(*receive.from->peer, fetch);
}

template <class Core>
void MatchReceiving<Core>::fetched(velo_rma_t& rma, Status status) {
    auto& fetch = static_cast<MatchReceive::Fetch&>(rma);
    MatchReceive& receive = *fetch.receive;
    fetches_.give_back(fetch);
    --fetching_;
    // The host is notified of a peer's end by itself.
    if (status != Status::kPeerDead) has_data(receive, status);
}

/// True: the peer that has the data of a message has ended, and the receive goes on waiting.
template <class Core>
bool MatchReceiving<Core>::source_gone(const MatchReceive& receive) {
    const MatchPeer& from = *receive.from;
    if (!has_ended(peers_.state_of(from))) [[likely]]
        return false;
    core_.peer_ends->report_lost(from.peer, Owed::kSource, peers_.host());
    return true;
}

template <class Core>
void MatchReceiving<Core>::has_data(MatchReceive& receive, Status status) {
    receive.face().status = static_cast<int>(status);
    peers_.tell(*receive.from, WireTag::kDone, match::DoneHeader{receive.number});
    receive_done(receive);
}

template <class Core>
void MatchReceiving<Core>::receive_done(MatchReceive& receive) {
    receive.state = MatchReceive::State::kDone;
    velo_match_message* const message = receive.holder;
    if (message == nullptr) [[likely]]
        return core_.events.match_received(receive.face());
    if (message->receive != nullptr) {
        MatchReceive& wanted = *message->receive;
        receive_message(message, wanted.buffer, wanted.capacity, wanted.face());
        core_.events.match_received(wanted.face());
    }
}

template <class Core>
bool MatchReceiving<Core>::post(MatchPeer* from, const match::Envelope& envelope, void* buffer, uint64_t capacity,
                               velo_match_receive_t& face) {
    auto& receive = *new (&face) MatchReceive(buffer, capacity);
    const match::RecordRef found = receiver_->post(receive, envelope, from == nullptr ? nullptr : &from->in);
    if (found != match::kNoRecord) return take_up(receive, receiver_->take(found));
    offers_are_due();
    return false;
}

template <class Core>
bool MatchReceiving<Core>::take_up(MatchReceive& receive, const match::Record& record) {
    const match::Unmatched message(record);
    MatchPeer& from = peers_.at(message.peer());
    const uint64_t number = message.number();
    const uint64_t bytes = message.bytes();
    const bool whole = message.bytes_here() == bytes;
    matched(receive, from, message.envelope(), number, bytes);
    uint64_t at = 0;
    receiver_->for_each_piece(record, [&](const std::byte* data, uint32_t piece) {
        copy_in(receive, at, data, piece);
        at += piece;
    });
    match::Place place;
    const bool has_place = receiver_->read_handle(record, reinterpret_cast<std::byte*>(&place), sizeof place);
    receiver_->release(record, from.finished ? nullptr : &from.in);
    offers_are_due();
    tell_if_due(from);
    if (has_place && fitting(receive) != 0) {
        fetch(receive, place);
        return false;
    }
    if (!whole) {
        if (!ask_for_data(receive)) return false;
    } else if ((number & kTellsMatch) != 0) {
        peers_.tell(from, WireTag::kDone, match::DoneHeader{receive.number});
    }
    receive.state = MatchReceive::State::kDone;
    return true;
}

template <class Core>
bool MatchReceiving<Core>::cancel(velo_match_receive_t& face) {
    MatchReceive& receive = MatchReceive::of(face);
    if (receive.state != MatchReceive::State::kPosted) return false;
    receiver_->withdraw(receive);
    receive.state = MatchReceive::State::kDone;
    return true;
}

template <class Core>
bool MatchReceiving<Core>::probe(const MatchPeer* from, const match::Envelope& envelope,
                                velo_match_status_t& status, velo_match_message** message) {
    const match::Receiver::Probed probed = receiver_->probe(envelope, from == nullptr ? nullptr : &from->in);
    if (!probed.found) {
        offers_are_due();
        return false;
    }
    status = {.source = probed.envelope.source, .tag = probed.envelope.tag, .bytes = probed.bytes};
    if (message == nullptr) return true;
    auto* const taken = new velo_match_message;
    *message = taken;
    if (probed.record != match::kNoRecord) {
        taken->record = receiver_->take(probed.record);
        return true;
    }
    // A receive of its envelope is the next that it matches.
    taken->posted = true;
    awaited_.insert(taken);
    taken->data = std::make_unique_for_overwrite<std::byte[]>(probed.bytes);
    post(&peers_.at(probed.peer), probed.envelope, taken->data.get(), probed.bytes, taken->place);
    MatchReceive::of(taken->place).holder = taken;
    return true;
}

template <class Core>
bool MatchReceiving<Core>::receive_message(velo_match_message* message, void* buffer, uint64_t capacity,
                                          velo_match_receive_t& face) {
    auto& receive = *new (&face) MatchReceive(buffer, capacity);
    if (message->posted && !MatchReceive::of(message->place).done()) {
        receive.state = MatchReceive::State::kMatched;  // its data goes to the message's own receive
        message->receive = &receive;
        return false;
    }
    const std::unique_ptr<velo_match_message> owner(message);
    if (message->posted) awaited_.erase(message);
    if (!message->posted) return take_up(receive, message->record);
    receive.state = MatchReceive::State::kDone;
    face.source = message->place.source;
    face.tag = message->place.tag;
    face.bytes = message->place.bytes;
    face.status = message->place.status;
    // The peer may have sent another length than it said at first.
    const uint64_t here = fitting(MatchReceive::of(message->place));
    if (here != 0) base::copy_long(buffer, message->data.get(), std::min(here, capacity));
    return true;
}

template <class Core>
void MatchReceiving<Core>::tell_untold(MatchPeer& to) {
    const match::Room room = to.in.granted.take_untold();
    if (!room.empty()) peers_.tell(to, WireTag::kGrant, match::GrantHeader::of(room));
}

template <class Core>
void MatchReceiving<Core>::offer(MatchPeer& to) {
    match::Offers::Batch batch;
    if (!receiver_->next_offer(to.in, batch)) return;
    const match::OffersHeader header = {.age = batch.age,
                                        .count = static_cast<uint8_t>(batch.resend_all ? 0 : batch.count),
                                        .resend_all = batch.resend_all};
    std::array<std::byte, sizeof header + sizeof batch.receives> bytes;
    std::memcpy(bytes.data(), &header, sizeof header);
    std::memcpy(bytes.data() + sizeof header, batch.receives.data(), header.count * sizeof batch.receives[0]);
    ++core_.counters.match_offers;
    peers_.tell_bytes(
        to, WireTag::kOffers, bytes.data(),
        static_cast<uint32_t>(sizeof header + header.count * sizeof batch.receives[0]));
}

template <class Core>
void MatchReceiving<Core>::drive() {
    offers_due_ = false;
    receiver_->for_each_flagged(
        [&](const match::Receiver::Sender& sender) { offer(peers_.at(sender.peer)); });
    while (match::Receiver::Sender* const sender = receiver_->next_to_restart()) {
        ++core_.counters.match_offers;
        peers_.tell(
            peers_.at(sender->peer), WireTag::kOffers,
            match::OffersHeader{.age = receiver_->resend_all(*sender), .count = 0, .resend_all = 1});
    }
}

}  // namespace velo
