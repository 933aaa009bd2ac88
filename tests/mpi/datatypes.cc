// Derived datatypes. Every type is built twice: with MPI, and as a list of the bytes it covers, in order. The
// list says what a message must contain and which bytes of a receive buffer must stay untouched, so nothing
// is compared with what MPI itself made of the type.
#include <algorithm>
#include <array>

#include "mpi_test.h"

namespace {

using mpi_test::Check;
using mpi_test::GuardedBuffer;
using mpi_test::Message;
using mpi_test::Suite;

constexpr int kTag = 21;

/// A type and its map: offsets of its bytes relative to the buffer's address, in the order of the type's
/// signature.
struct Type {
    MPI_Datatype mpi = MPI_DATATYPE_NULL;
    std::vector<std::ptrdiff_t> bytes;
    std::ptrdiff_t lower = 0;
    std::ptrdiff_t upper = 0;
    /// Strictest alignment of its members, to whose multiple MPI rounds an extent that was not set.
    std::ptrdiff_t alignment = 1;
    bool bounds_are_set = false;

    [[nodiscard]] std::ptrdiff_t extent() const { return upper - lower; }
};

Type basic(MPI_Datatype mpi, int size) {
    Type type{mpi, {}, 0, size, size, false};
    for (int i = 0; i < size; ++i) type.bytes.push_back(i);
    return type;
}

Type int_type() {
    return basic(MPI_INT, sizeof(int));
}

struct Block {
    std::ptrdiff_t offset;
    int count;
};

/// The map shared by all constructors: blocks of consecutive elements at byte offsets.
Type map_of(const Type& element, const std::vector<Block>& blocks) {
    Type type;
    type.alignment = element.alignment;
    type.bounds_are_set = element.bounds_are_set;
    bool first = true;
    for (const Block& block : blocks) {
        for (int i = 0; i < block.count; ++i) {
            const std::ptrdiff_t at = block.offset + i * element.extent();
            for (const std::ptrdiff_t byte : element.bytes) type.bytes.push_back(at + byte);
            type.lower = first ? at + element.lower : std::min(type.lower, at + element.lower);
            type.upper = first ? at + element.upper : std::max(type.upper, at + element.upper);
            first = false;
        }
    }
    const std::ptrdiff_t excess = type.extent() % type.alignment;
    if (!type.bounds_are_set && excess != 0) type.upper += type.alignment - excess;
    return type;
}

/// Commits, and releases the element unless it is predefined; the derived type stays valid without it.
Type finish(Type type, const Type& element) {
    int integers, addresses, types, combiner;
    MPI_Type_get_envelope(element.mpi, &integers, &addresses, &types, &combiner);
    if (combiner != MPI_COMBINER_NAMED) {
        MPI_Datatype released = element.mpi;
        MPI_Type_free(&released);
    }
    MPI_Type_commit(&type.mpi);
    return type;
}

Type contiguous(const Type& element, int count) {
    Type type = map_of(element, {{0, count}});
    MPI_Type_contiguous(count, element.mpi, &type.mpi);
    return finish(type, element);
}

Type vector(const Type& element, int count, int length, int stride) {
    std::vector<Block> blocks;
    for (int i = 0; i < count; ++i) blocks.push_back({i * stride * element.extent(), length});
    Type type = map_of(element, blocks);
    MPI_Type_vector(count, length, stride, element.mpi, &type.mpi);
    return finish(type, element);
}

Type hvector(const Type& element, int count, int length, std::ptrdiff_t stride) {
    std::vector<Block> blocks;
    for (int i = 0; i < count; ++i) blocks.push_back({i * stride, length});
    Type type = map_of(element, blocks);
    MPI_Type_create_hvector(count, length, stride, element.mpi, &type.mpi);
    return finish(type, element);
}

Type indexed(const Type& element, const std::vector<int>& lengths, const std::vector<int>& places) {
    std::vector<Block> blocks;
    for (std::size_t i = 0; i < lengths.size(); ++i)
        blocks.push_back({places[i] * element.extent(), lengths[i]});
    Type type = map_of(element, blocks);
    MPI_Type_indexed(static_cast<int>(lengths.size()), lengths.data(), places.data(), element.mpi, &type.mpi);
    return finish(type, element);
}

Type hindexed(const Type& element, const std::vector<int>& lengths, const std::vector<MPI_Aint>& places) {
    std::vector<Block> blocks;
    for (std::size_t i = 0; i < lengths.size(); ++i) blocks.push_back({places[i], lengths[i]});
    Type type = map_of(element, blocks);
    MPI_Type_create_hindexed(static_cast<int>(lengths.size()), lengths.data(), places.data(), element.mpi,
                             &type.mpi);
    return finish(type, element);
}

Type indexed_block(const Type& element, int length, const std::vector<int>& places) {
    std::vector<Block> blocks;
    for (const int place : places) blocks.push_back({place * element.extent(), length});
    Type type = map_of(element, blocks);
    MPI_Type_create_indexed_block(static_cast<int>(places.size()), length, places.data(), element.mpi,
                                  &type.mpi);
    return finish(type, element);
}

Type resized(const Type& element, std::ptrdiff_t lower, std::ptrdiff_t extent) {
    Type type = element;
    type.lower = lower;
    type.upper = lower + extent;
    type.bounds_are_set = true;
    MPI_Type_create_resized(element.mpi, lower, extent, &type.mpi);
    return finish(type, element);
}

Type subarray(const Type& element, const std::array<int, 3>& sizes, const std::array<int, 3>& part,
              const std::array<int, 3>& start, int order) {
    Type type;
    // In Fortran order the first dimension varies fastest.
    const std::array<int, 3> slow_to_fast = order == MPI_ORDER_C ? std::array{0, 1, 2} : std::array{2, 1, 0};
    const auto [a, b, c] = slow_to_fast;
    for (int i = 0; i < part[a]; ++i) {
        for (int j = 0; j < part[b]; ++j) {
            for (int k = 0; k < part[c]; ++k) {
                const int at = ((start[a] + i) * sizes[b] + start[b] + j) * sizes[c] + start[c] + k;
                for (const std::ptrdiff_t byte : element.bytes)
                    type.bytes.push_back(at * element.extent() + byte);
            }
        }
    }
    type.upper = sizes[0] * sizes[1] * sizes[2] * element.extent();
    type.bounds_are_set = true;
    MPI_Type_create_subarray(3, sizes.data(), part.data(), start.data(), order, element.mpi, &type.mpi);
    return finish(type, element);
}

/// char, double, short[3], int with the holes a compiler leaves, and a tail up to `extent`.
Type structure(std::ptrdiff_t extent) {
    const std::array<int, 4> lengths = {1, 1, 3, 1};
    const std::array<MPI_Aint, 4> places = {0, 8, 18, 28};
    const std::array<MPI_Datatype, 4> types = {MPI_CHAR, MPI_DOUBLE, MPI_SHORT, MPI_INT};
    const std::array<int, 4> sizes = {1, 8, 2, 4};
    Type type;
    for (std::size_t i = 0; i < 4; ++i) {
        for (int byte = 0; byte < lengths[i] * sizes[i]; ++byte) type.bytes.push_back(places[i] + byte);
    }
    MPI_Datatype plain;
    MPI_Type_create_struct(4, lengths.data(), places.data(), types.data(), &plain);
    MPI_Type_create_resized(plain, 0, extent, &type.mpi);
    MPI_Type_free(&plain);
    MPI_Type_commit(&type.mpi);
    type.upper = extent;
    type.bounds_are_set = true;
    return type;
}

/// `count` elements of the type, in a buffer that begins `origin` bytes before the address given to MPI.
struct Layout {
    Layout(const Type& type, int count) : type(type), count(count) {
        std::ptrdiff_t lowest = 0;
        std::ptrdiff_t highest = 0;
        for (int i = 0; i < count; ++i) {
            for (const std::ptrdiff_t byte : type.bytes) {
                offsets.push_back(i * type.extent() + byte);
                lowest = std::min(lowest, offsets.back());
                highest = std::max(highest, offsets.back() + 1);
            }
        }
        origin = static_cast<std::size_t>(-lowest);
        storage_bytes = static_cast<std::size_t>(highest - lowest);
    }

    [[nodiscard]] Message message(int source, int destination) const {
        return {source, destination, offsets.size(), static_cast<std::uint64_t>(count)};
    }
    void scatter(GuardedBuffer& buffer, const Message& message) const {
        for (std::size_t i = 0; i < offsets.size(); ++i)
            at(buffer, i) = mpi_test::pattern_byte(message.key(), i);
    }
    [[nodiscard]] std::byte& at(GuardedBuffer& buffer, std::size_t i) const {
        return *(buffer.data() + origin + offsets[i]);
    }
    [[nodiscard]] void* address(GuardedBuffer& buffer) const { return buffer.data() + origin; }

    /// The first `bytes` of the message are in their places, and every other byte is as it was.
    void verify(Check& check, GuardedBuffer buffer, const Message& message, std::size_t bytes,
                const char* what) const {
        const std::uint64_t key = message.key();
        for (std::size_t i = 0; i < bytes; ++i) {
            std::byte& got = at(buffer, i);
            if (got != mpi_test::pattern_byte(key, i)) {
                check.fail("%s: count %d size %zu: byte %zu at offset %td: expected 0x%02x got 0x%02x", what,
                           count, offsets.size(), i, offsets[i],
                           std::to_integer<unsigned>(mpi_test::pattern_byte(key, i)),
                           std::to_integer<unsigned>(got));
                return;
            }
        }
        for (std::size_t i = 0; i < bytes; ++i) at(buffer, i) = GuardedBuffer::kPoison;
        check.equal(buffer.first_overrun(0, PTRDIFF_MIN), PTRDIFF_MIN, what);
    }

    const Type& type;
    int count;
    std::vector<std::ptrdiff_t> offsets;
    std::size_t origin = 0;
    std::size_t storage_bytes = 0;
};

/// Moves a message from rank to rank along the ring: `count_out` of one type leave, `count_in` of another
/// arrive.
void move(Check& check, const void* out, int count_out, MPI_Datatype type_out, void* in, int count_in,
          MPI_Datatype type_in, bool expected, MPI_Status* status) {
    MPI_Request receive;
    MPI_Request send;
    if (expected) MPI_Irecv(in, count_in, type_in, check.previous(), kTag, check.comm, &receive);
    if (expected) MPI_Barrier(check.comm);
    MPI_Isend(out, count_out, type_out, check.next(), kTag, check.comm, &send);
    if (!expected) MPI_Barrier(check.comm);
    if (!expected) MPI_Irecv(in, count_in, type_in, check.previous(), kTag, check.comm, &receive);
    MPI_Wait(&receive, status);
    MPI_Wait(&send, MPI_STATUS_IGNORE);
}

std::vector<std::byte> packed(Check& check, GuardedBuffer& source, const Layout& layout) {
    int bytes = 0;
    MPI_Pack_size(layout.count, layout.type.mpi, check.comm, &bytes);
    // MPI_Pack refuses the null address of an empty vector, even for nothing.
    std::vector<std::byte> data(static_cast<std::size_t>(std::max(bytes, 1)));
    int position = 0;
    MPI_Pack(layout.address(source), layout.count, layout.type.mpi, data.data(), bytes, &position,
             check.comm);
    data.resize(static_cast<std::size_t>(position));
    return data;
}

void unpack_and_verify(Check& check, const std::vector<std::byte>& data, const Layout& layout,
                       const Message& message, const char* what) {
    GuardedBuffer buffer(layout.storage_bytes);
    if (data.empty()) return;
    int position = 0;
    MPI_Unpack(data.data(), static_cast<int>(data.size()), &position, layout.address(buffer), layout.count,
               layout.type.mpi, check.comm);
    layout.verify(check, buffer, message, message.bytes, what);
}

/// The four legal ways in which a type may meet the other end: itself, packed there, packed here, unpacked
/// here.
void exchange(Check& check, const Type& type, int count, bool expected) {
    const Layout layout(type, count);
    const Message out = layout.message(check.rank, check.next());
    const Message in = layout.message(check.previous(), check.rank);
    GuardedBuffer source(layout.storage_bytes);
    layout.scatter(source, out);
    MPI_Status status;

    GuardedBuffer typed(layout.storage_bytes);
    move(check, layout.address(source), count, type.mpi, layout.address(typed), count, type.mpi, expected,
         &status);
    layout.verify(check, typed, in, in.bytes, "type to type");
    int received = -1;
    MPI_Get_count(&status, type.mpi, &received);
    check.equal(received, in.bytes == 0 ? 0 : count, "count of the type");

    const auto outgoing = packed(check, source, layout);
    std::vector<std::byte> incoming(outgoing.size());
    const int packed_bytes = static_cast<int>(outgoing.size());
    move(check, layout.address(source), count, type.mpi, incoming.data(), packed_bytes, MPI_PACKED, expected,
         &status);
    unpack_and_verify(check, incoming, layout, in, "type to packed");

    GuardedBuffer unpacked(layout.storage_bytes);
    move(check, outgoing.data(), packed_bytes, MPI_PACKED, layout.address(unpacked), count, type.mpi,
         expected, &status);
    layout.verify(check, unpacked, in, in.bytes, "packed to type");
    unpack_and_verify(check, outgoing, layout, out, "pack and unpack");
}

/// The type's size and bounds are MPI's and the model's alike, and messages from one packet to well into
/// rendezvous arrive where they should. Releases the type.
void type_check(Check& check, Type type) {
    int size = -1;
    MPI_Aint lower = 0;
    MPI_Aint extent = 0;
    MPI_Type_size(type.mpi, &size);
    MPI_Type_get_extent(type.mpi, &lower, &extent);
    check.equal(size, static_cast<long long>(type.bytes.size()), "size");
    check.equal(lower, type.lower, "lower bound");
    // Messages of a type that is not what the model says would be written past the buffers.
    if (!check.equal(extent, type.extent(), "extent")) return;
    const std::size_t one = std::max<std::size_t>(type.bytes.size(), 1);
    std::vector<std::size_t> totals = {0, 1, 300, 2048, 9000, 120000};
    if (!check.quick) totals.insert(totals.end(), {57, 1000, 4096, 40000, 500000});
    for (const std::size_t total : totals) {
        const int count = static_cast<int>(type.bytes.empty() ? total % 5 : (total + one - 1) / one);
        exchange(check, type, count, true);
        exchange(check, type, count, false);
    }
    MPI_Type_free(&type.mpi);
}

/// A sender and a receiver have different types of the same integers: only the signatures have to agree.
void sender_type_differs(Check& check) {
    for (const int scale : {1, 20, 900, 12000}) {
        const int elements = 12 * scale;
        Type sender = vector(int_type(), 3 * scale, 4, 7);
        Type receiver = resized(indexed(int_type(), {1, 2, 3}, {9, 0, 4}), 0, 44);
        Type dense = int_type();
        const Layout from(sender, 1);
        const Layout to(receiver, elements / 6);
        const Layout flat(dense, elements);
        const Message out{check.rank, check.next(), from.offsets.size(), 1};
        const Message in{check.previous(), check.rank, from.offsets.size(), 1};
        GuardedBuffer source(from.storage_bytes);
        from.scatter(source, out);
        MPI_Status status;
        for (const bool expected : {true, false}) {
            GuardedBuffer target(to.storage_bytes);
            move(check, from.address(source), 1, sender.mpi, to.address(target), to.count, receiver.mpi,
                 expected, &status);
            to.verify(check, target, in, in.bytes, "vector to indexed");
            GuardedBuffer plain(flat.storage_bytes);
            move(check, from.address(source), 1, sender.mpi, flat.address(plain), elements, MPI_INT, expected,
                 &status);
            flat.verify(check, plain, in, in.bytes, "vector to contiguous");
            GuardedBuffer plain_source(flat.storage_bytes);
            flat.scatter(plain_source, out);
            GuardedBuffer gapped(from.storage_bytes);
            move(check, flat.address(plain_source), elements, MPI_INT, from.address(gapped), 1, sender.mpi,
                 expected, &status);
            from.verify(check, gapped, in, in.bytes, "contiguous to vector");
        }
        MPI_Type_free(&sender.mpi);
        MPI_Type_free(&receiver.mpi);
    }
}

/// A receive that holds more than was sent: the rest stays untouched, and the counts say how much came, also
/// when it ends in the middle of an element.
void shorter_than_the_receive(Check& check) {
    Type type = resized(vector(int_type(), 5, 1, 3), 0, 64);
    for (const int ints : {0, 1, 4, 5, 7, 500, 1003, 60004}) {
        const Layout layout(type, ints / 5 + 2);
        const Message in{check.previous(), check.rank, static_cast<std::size_t>(ints) * sizeof(int), 2};
        const auto data = mpi_test::filled({check.rank, check.next(), in.bytes, 2});
        GuardedBuffer buffer(layout.storage_bytes);
        MPI_Status status;
        move(check, data.data(), ints, MPI_INT, layout.address(buffer), layout.count, type.mpi, true,
             &status);
        layout.verify(check, buffer, in, in.bytes, "partial receive");
        int count = -1;
        int elements = -1;
        MPI_Get_count(&status, type.mpi, &count);
        MPI_Get_elements(&status, type.mpi, &elements);
        check.equal(count, ints % 5 == 0 ? ints / 5 : MPI_UNDEFINED, "count");
        check.equal(elements, ints, "elements");
    }
    MPI_Type_free(&type.mpi);
}

/// Parts of separate buffers under one type of absolute addresses.
void bottom_with_absolute_addresses(Check& check) {
    for (const int length : {3, 70, 600, 30000}) {
        const auto part = static_cast<std::size_t>(length) * sizeof(int);
        std::array<GuardedBuffer, 3> buffers = {GuardedBuffer(part), GuardedBuffer(part),
                                                GuardedBuffer(part)};
        std::array<std::vector<std::byte>, 3> data;
        std::array<MPI_Aint, 3> from;
        std::array<MPI_Aint, 3> to;
        for (std::size_t i = 0; i < 3; ++i) {
            data[i] = mpi_test::filled({check.rank, check.next(), part, i});
            MPI_Get_address(data[i].data(), &from[i]);
            MPI_Get_address(buffers[2 - i].data(), &to[i]);
        }
        const std::array<int, 3> lengths = {length, length, length};
        MPI_Datatype sender;
        MPI_Datatype receiver;
        MPI_Type_create_hindexed(3, lengths.data(), from.data(), MPI_INT, &sender);
        MPI_Type_create_hindexed(3, lengths.data(), to.data(), MPI_INT, &receiver);
        MPI_Type_commit(&sender);
        MPI_Type_commit(&receiver);
        MPI_Status status;
        move(check, MPI_BOTTOM, 1, sender, MPI_BOTTOM, 1, receiver, true, &status);
        for (std::size_t i = 0; i < 3; ++i) {
            check.received(buffers[2 - i], {check.previous(), check.rank, part, i}, part,
                           "absolute addresses");
        }
        MPI_Type_free(&sender);
        MPI_Type_free(&receiver);
    }
}

/// Data in one piece that does not begin at the address given to MPI, by every kind of send. (Hosts give those that are
/// sent once and those that are kept to a transport in different states.)
void one_piece_elsewhere(Check& check) {
    using Start = int (*)(const void*, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request*);
    struct Kind {
        const char* name;
        Start start;
        bool persistent = false;
    };
    const Kind kinds[] = {{"Isend", MPI_Isend},
                          {"Issend", MPI_Issend},
                          {"Ibsend", MPI_Ibsend},
                          {"Send",
                           [](const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
                              MPI_Request* request) {
                               *request = MPI_REQUEST_NULL;
                               return MPI_Send(data, count, type, to, tag, comm);
                           }},
                          {"Send_init", MPI_Send_init, true},
                          {"Ssend_init", MPI_Ssend_init, true},
                          {"Bsend_init", MPI_Bsend_init, true}};
    constexpr int kBsendInitBytesMax = 700;
    std::vector<std::byte> attached(200000 + MPI_BSEND_OVERHEAD);
    MPI_Buffer_attach(attached.data(), static_cast<int>(attached.size()));
    for (const int length : {1, 8, 700, 9000, 160000}) {
        const Message out = {check.rank, check.next(), static_cast<std::size_t>(length), 5};
        const Message in = {check.previous(), check.rank, out.bytes, 5};
        const auto data = mpi_test::filled(out);
        for (const bool bottom : {false, true}) {
            MPI_Aint place = 64;
            if (bottom) MPI_Get_address(data.data(), &place);
            const void* const address = bottom ? MPI_BOTTOM : data.data() - place;
            MPI_Datatype type;
            MPI_Type_create_hindexed(1, &length, &place, MPI_BYTE, &type);
            MPI_Type_commit(&type);
            for (const Kind& kind : kinds) {
                // ob1 of 4.1.4 sends other bytes then, over any transport: those at the address.
                if (kind.start == MPI_Bsend_init && length > kBsendInitBytesMax) continue;
                MPI_Request send = MPI_REQUEST_NULL;
                for (int i = 0; i < (kind.persistent ? 2 : 1); ++i) {
                    GuardedBuffer buffer(in.bytes);
                    MPI_Request receive;
                    MPI_Irecv(buffer.data(), length, MPI_BYTE, check.previous(), kTag, check.comm, &receive);
                    MPI_Barrier(check.comm);  // so that a blocking send ends
                    if (i == 0) kind.start(address, 1, type, check.next(), kTag, check.comm, &send);
                    if (kind.persistent) MPI_Start(&send);
                    MPI_Wait(&receive, MPI_STATUS_IGNORE);
                    MPI_Wait(&send, MPI_STATUS_IGNORE);
                    check.received(buffer, in, in.bytes, kind.name);
                }
                if (kind.persistent) MPI_Request_free(&send);
            }
            MPI_Type_free(&type);
        }
    }
    void* detached;
    int room;
    MPI_Buffer_detach(&detached, &room);
}

/// One message packed from pieces of several types, unpacked in the same order at the other end.
void pack_of_pieces(Check& check) {
    for (const std::size_t bytes : {10UL, 1500UL, 100000UL}) {
        const int count = static_cast<int>(bytes);
        const auto payload = mpi_test::filled({check.rank, check.next(), bytes, 4});
        const std::array<double, 2> numbers = {1.5 * check.rank, -2.25};
        std::vector<std::byte> out(bytes + 256);
        const int room = static_cast<int>(out.size());
        int position = 0;
        MPI_Pack(&count, 1, MPI_INT, out.data(), room, &position, check.comm);
        MPI_Pack(numbers.data(), 2, MPI_DOUBLE, out.data(), room, &position, check.comm);
        MPI_Pack(payload.data(), count, MPI_BYTE, out.data(), room, &position, check.comm);
        std::vector<std::byte> in(out.size());
        MPI_Status status;
        move(check, out.data(), position, MPI_PACKED, in.data(), room, MPI_PACKED, true, &status);
        int got_count = 0;
        std::array<double, 2> got_numbers{};
        GuardedBuffer buffer(bytes);
        position = 0;
        MPI_Unpack(in.data(), room, &position, &got_count, 1, MPI_INT, check.comm);
        MPI_Unpack(in.data(), room, &position, got_numbers.data(), 2, MPI_DOUBLE, check.comm);
        MPI_Unpack(in.data(), room, &position, buffer.data(), count, MPI_BYTE, check.comm);
        check.equal(got_count, count, "packed count");
        check.equal(got_numbers == std::array<double, 2>{1.5 * check.previous(), -2.25}, 1, "packed doubles");
        check.received(buffer, {check.previous(), check.rank, bytes, 4});
    }
}

}  // namespace

int main(int argc, char** argv) {
    return mpi_test::run(argc, argv, [](Suite& suite) {
        const auto type = [&](const char* name, const std::function<Type()>& make) {
            suite.check(name, [&](Check& check) { type_check(check, make()); });
        };
        type("contiguous", [] { return contiguous(int_type(), 17); });
        type("vector", [] { return vector(int_type(), 5, 2, 3); });
        type("vector_of_single_bytes", [] { return vector(basic(MPI_BYTE, 1), 100, 1, 2); });
        type("hvector_unaligned", [] { return hvector(int_type(), 7, 1, 9); });
        type("hvector_negative_stride", [] { return hvector(int_type(), 4, 2, -12); });
        type("indexed", [] { return indexed(int_type(), {3, 0, 1, 5}, {10, 4, 0, 20}); });
        type("hindexed", [] { return hindexed(basic(MPI_DOUBLE, 8), {1, 2, 1}, {40, 0, 25}); });
        type("one_block_behind_the_start", [] { return indexed(int_type(), {3}, {10}); });
        type("indexed_block", [] { return indexed_block(int_type(), 2, {7, 0, 3}); });
        type("structure_with_gaps", [] { return structure(40); });
        type("subarray_c", [] { return subarray(int_type(), {6, 5, 7}, {3, 2, 4}, {1, 2, 3}, MPI_ORDER_C); });
        type("subarray_fortran", [] {
            return subarray(int_type(), {6, 5, 7}, {3, 2, 4}, {1, 2, 3}, MPI_ORDER_FORTRAN);
        });
        type("resized_wider", [] { return resized(int_type(), 0, 12); });
        // Elements interleave: each one's second integer lies beyond the next one's first.
        type("resized_narrower", [] { return resized(vector(int_type(), 2, 1, 3), 0, 8); });
        type("resized_negative_lower", [] { return resized(contiguous(int_type(), 2), -8, 24); });
        type("contiguous_of_vector", [] { return contiguous(vector(int_type(), 3, 2, 4), 5); });
        type("vector_of_structure", [] { return vector(structure(36), 3, 2, 3); });
        type("nested_four_deep", [] {
            return indexed(contiguous(resized(vector(structure(40), 2, 1, 2), 0, 130), 2), {1, 2}, {4, 0});
        });
        type("empty_vector", [] { return vector(int_type(), 0, 2, 3); });
        type("empty_blocks", [] { return indexed(int_type(), {0, 0, 0}, {0, 5, 9}); });
        type("large_vector_of_lines", [] { return vector(int_type(), 512, 16, 32); });
        type("large_blocks", [] { return vector(basic(MPI_BYTE, 1), 3, 50000, 60000); });
        suite.check("sender_type_differs", sender_type_differs);
        suite.check("shorter_than_the_receive", shorter_than_the_receive);
        suite.check("bottom_with_absolute_addresses", bottom_with_absolute_addresses);
        suite.check("one_piece_elsewhere", one_piece_elsewhere);
        suite.check("pack_of_pieces", pack_of_pieces);
    });
}
