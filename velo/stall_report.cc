#include "velo/stall_report.h"

#include "velo/base/life_watch.h"
#include "velo/base/text.h"
#include "velo/packet.h"

namespace velo {
namespace {

using base::append;
using base::number;

double seconds(uint64_t ns) {
    return static_cast<double>(ns) / 1e9;
}

void add_process(std::string& text, const PeerReport& peer) {
    switch (peer.pid_known_here ? base::process_state(peer.pid) : base::ProcessState::kRuns) {
        case base::ProcessState::kEnded: text += ", has ended"; break;
        case base::ProcessState::kStopped: text += ", is stopped by a signal or a debugger"; break;
        case base::ProcessState::kRuns: break;
    }
    constexpr uint64_t kRecentlyNs = 1'000'000'000;
    if (peer.seen_ns != UINT64_MAX && peer.seen_ns >= kRecentlyNs) {
        append(text, ", was last in MPI %.1f s ago", seconds(peer.seen_ns));
    }
}

void add_ring(std::string& text, const PeerReport& peer) {
    if (!peer.ring) {
        text += "      there is no ring to it yet: it has not taken the first contact\n";
        return;
    }
    append(text,
           "      ring to it: %llu of %u lines and %llu of %u bytes not read (positions: lines %llu written, "
           "%llu "
           "read; bytes %llu, %llu)\n",
           number(peer.lines_written - peer.lines_read), peer.ring_lines,
           number(peer.body_written - peer.body_read), peer.ring_bytes, number(peer.lines_written),
           number(peer.lines_read), number(peer.body_written), number(peer.body_read));
}

void add_mailbox(std::string& text, const PeerReport& peer) {
    if (peer.credited && peer.by_contact) {
        text += "      owns no slots at it; what goes there needs one of its contact slots\n";
    } else if (peer.credited) {
        append(text, "      credits at it: %u", peer.credits);
        if (peer.quota != 0) append(text, " of %u", peer.quota);
        if (peer.queued != 0)
            append(text, ", and the rest of the first message needs %u", peer.credits_needed);
        text += peer.queued != 0 && peer.credits == 0 ? ": waits for credits\n" : "\n";
    }
    append(text, "      its mailbox: %llu of %u slots not read (positions: %llu written, %llu read)\n",
           number(peer.mailbox_written - peer.mailbox_read), peer.mailbox_slots, number(peer.mailbox_written),
           number(peer.mailbox_read));
    if (peer.held_packets != 0) {
        append(text, "      %u packets to it are held back by the device\n", peer.held_packets);
    }
}

void add_operations(std::string& text, const WaitingOperations& operations, const char* what) {
    if (operations.count == 0) return;
    append(text, "    %u %s", operations.count, what);
    if (operations.bytes != 0) append(text, ", %llu bytes", number(operations.bytes));
    text += "\n";
}

void add_waits(std::string& text, const PeerReport& peer) {
    const bool on_node = peer.path == VELO_PATH_ON_NODE;
    if (peer.queued != 0) {
        const char* classes[] = {"Open MPI's", "engine's", "credits", "unknown"};
        append(text,
               "    %u messages queued, %llu bytes; the first one (%s, tag %u) has sent %u of %u bytes\n",
               peer.queued, number(peer.queued_bytes), classes[peer.first_class & 3], peer.first_tag,
               peer.first_done, peer.first_bytes);
    }
    add_operations(text, peer.gets, "gets not fully started");
    add_operations(text, peer.puts, "puts not fully started");
    add_operations(text, peer.device_chunks, "RMA operations wait for the device's notification");
    add_operations(text, peer.pulls, "chunks asked for (pull) wait for their data (pull data)");
    add_operations(text, peer.pushes, "chunks sent (put data) wait for their end (done)");
    add_operations(text, peer.coop_blocks, "blocks fetched jointly wait for data of its part (joint data)");
    add_operations(text, peer.atomics, "atomics wait for their answer");
    add_operations(text, peer.assists, "blocks that it fetches from here have parts left to send");
    if (peer.credits_owed != 0) {
        append(text, "    %u credits for it cannot leave\n", peer.credits_owed);
    }
    if (on_node) {
        add_ring(text, peer);
    } else {
        add_mailbox(text, peer);
        if (peer.device_operations != 0) {
            append(text, "      %u operations on it are with the device\n", peer.device_operations);
        }
    }
}

void add_name(std::string& text, const PeerReport& peer) {
    if (peer.known) {
        append(text, "rank %u (pid %d, %s", peer.rank, peer.pid,
               peer.path == VELO_PATH_ON_NODE ? "on-node ring" : "VELO packets");
    } else {
        append(text, "a process that this one has not connected to (%s",
               peer.path == VELO_PATH_ON_NODE ? "on-node ring" : "VELO packets");
    }
    if (peer.known) add_process(text, peer);
    text += ")";
}

void add_unconsumed(std::string& text, const StallReport& report) {
    std::string lines;
    if (report.mailbox_written != report.mailbox_read) {
        append(lines, "    its mailbox: %llu of %u slots (positions: %llu written, %llu read)\n",
               number(report.mailbox_written - report.mailbox_read), report.mailbox_slots,
               number(report.mailbox_written), number(report.mailbox_read));
    }
    if (report.unanswered_contacts != 0) {
        append(lines, "    %zu first contacts that could not be answered\n", report.unanswered_contacts);
    }
    for (const PeerReport& peer : report.peers) {
        if (!peer.unconsumed()) continue;
        lines += "    ";
        add_name(lines, peer);
        lines += ":";
        if (peer.unread) lines += " messages in its ring";
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
        if (peer.credits_retrieved != 0) {
            append(text, "      credits kept for it: %u, returned at %u\n", peer.credits_retrieved,
                   peer.credits_threshold);
        }
    }
    if (!any) text += "  nothing of it is pending in velo\n";
    add_unconsumed(text, report);
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text;
}

}  // namespace velo
