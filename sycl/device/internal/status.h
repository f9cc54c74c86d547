// File: sycl/device/internal/status.h
// The runtime's exceptions as a Status.
//
//   PAGEMILL_RETURN_IF_ERROR(Guarded([&] { queue.wait_and_throw(); }));
#ifndef PAGEMILL_SYCL_DEVICE_INTERNAL_STATUS_H_
#define PAGEMILL_SYCL_DEVICE_INTERNAL_STATUS_H_

#include <exception>
#include <string>
#include <sycl/sycl.hpp>

#include "cc/base/status.h"

namespace pagemill::sycl {

inline Status StatusOf(const std::exception& error) {
  const auto* own = dynamic_cast<const ::sycl::exception*>(&error);
  const std::string message = std::string("SYCL: ") + error.what();
  if (own != nullptr && own->code() == ::sycl::errc::memory_allocation) {
    return ResourceExhausted(message);
  }
  return Internal(message);
}

template <typename Body>
Status Guarded(const Body& body) {
  try {
    body();
  } catch (const std::exception& error) {
    return StatusOf(error);
  }
  return OkStatus();
}

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_DEVICE_INTERNAL_STATUS_H_
