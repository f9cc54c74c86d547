// File: cc/bindings/set_adapter.h
// The slots of adapters that executors of each kind have, for runners and for ranks that follow.
#ifndef PAGEMILL_CC_BINDINGS_SET_ADAPTER_H_
#define PAGEMILL_CC_BINDINGS_SET_ADAPTER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "cc/base/status.h"
#include "cc/program/adapters/adapter_weights.h"
#include "cc/program/device/device_executor.h"
#include "cc/program/native_executor.h"

namespace pagemill::bindings {

// Gives a slot of an executor to an adapter, or empties it (null).
using SetAdapter =
    std::function<Status(int32_t slot, std::shared_ptr<const program::AdapterWeights> weights)>;

// `executor` outlives the result.
inline SetAdapter SetAdapterOf(program::NativeExecutor& executor) {
  return [&executor](int32_t slot, std::shared_ptr<const program::AdapterWeights> weights) {
    return executor.SetAdapter(slot, std::move(weights));
  };
}

inline SetAdapter SetAdapterOf(program::DeviceExecutor& executor) {
  return [&executor](int32_t slot, const std::shared_ptr<const program::AdapterWeights>& weights) {
    return executor.SetAdapter(slot, weights.get());
  };
}

}  // namespace pagemill::bindings

#endif  // PAGEMILL_CC_BINDINGS_SET_ADAPTER_H_
