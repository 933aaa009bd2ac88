/// Registration of memory: with the node's table and with the device.
#pragma once

#include "velo/base/check.h"
#include "velo/device/device.h"
#include "velo/velo.h"
#include "velo/wire/handle.h"

namespace velo::rma {

/// Owner: the engine. Thread: the engine's, under its lock.
template <class Core>
class Registrations {
  public:
    explicit Registrations(Core& core) : core_(core) {}

    Status add(void* base, size_t bytes, uint32_t access, velo_handle_t& handle) {
        Registration here;
        if (const Status status = core_.on_node.atu().add(base, bytes, access, here); status != Status::kOk) {
            ++core_.counters.registrations_refused;
            return status;
        }
        Registration device;
        if (core_.device &&
            core_.device->register_memory(base, bytes, static_cast<Access>(access), device) != Status::kOk) {
            // Peers beyond the device then fetch this range in messages.
            ++core_.counters.registrations_refused;
            device = {};
        }
        ++core_.counters.registrations;
        handle = {.base = reinterpret_cast<uint64_t>(base),
                  .bytes = bytes,
                  .nla = {here.nla, device.nla},
                  .device_key = device.key,
                  .on_node_key = static_cast<uint32_t>(here.key),
                  .reserved = 0,
                  .check = 0};
        handle.check = check_of(handle);
        VELO_DCHECK(names(handle, handle.base, handle.bytes), "a handle of %zu bytes does not name them",
                    bytes);
        return Status::kOk;
    }

    void remove(const velo_handle_t& handle) {
        Status status = core_.on_node.atu().remove(
            {.nla = handle.nla[0], .bytes = handle.bytes, .key = handle.on_node_key});
        if (status == Status::kOk && core_.device && handle.device_key != 0) {
            status = core_.device->deregister(
                {.nla = handle.nla[1], .bytes = handle.bytes, .key = handle.device_key});
        }
        VELO_CHECK(status == Status::kOk, "deregistration of %llu bytes: %s",
                   static_cast<unsigned long long>(handle.bytes), to_string(status));
    }

  private:
    Core& core_;
};

}  // namespace velo::rma
