// File: cc/capi/versioned.h
// Structs of the C ABI passed by a host that was built with another header. Each begins with its
// size in the host's header; the library accesses no byte past it.
//
//   pagemill_request request;
//   PAGEMILL_RETURN_IF_ERROR(CopyIn("request", from_host, kFirstRequestSize, &request));
//
// A host's size must be at least that of the first header of this ABI version, and a multiple of
// the struct's alignment, so that it never ends within a field. No struct ends with padding: a
// later field would use bytes that older hosts have but do not set (abi_test.py checks this).
#ifndef PAGEMILL_CC_CAPI_VERSIONED_H_
#define PAGEMILL_CC_CAPI_VERSIONED_H_

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

#include "cc/base/status.h"

namespace pagemill::capi {

// Implements `*_init(to, struct_size)`: copies the first `struct_size` bytes of `defaults`.
template <typename T>
void Initialize(const T& defaults, size_t struct_size, T* to) {
  if (to == nullptr || struct_size < sizeof(size_t)) return;
  std::memcpy(static_cast<void*>(to), &defaults, std::min(struct_size, sizeof(T)));
  to->struct_size = struct_size;
}

// Checks that `host`, named `name` in messages, is not NULL and has a size that this library
// supports.
template <typename T>
Status CheckSize(const char* name, const T* host, size_t first_size) {
  if (host == nullptr) return InvalidArgument(std::string(name) + " is NULL");
  const size_t size = host->struct_size;
  if (size >= first_size && size <= sizeof(T) && size % alignof(T) == 0) return OkStatus();
  return InvalidArgument(std::string(name) + "->struct_size is " + std::to_string(size) +
                         "; this library knows " + std::to_string(first_size) + " to " +
                         std::to_string(sizeof(T)) +
                         ": fill the struct in with its _init function, and use a library that is "
                         "not older than the header");
}

// Overwrites the defaults in `to` with the fields of the host's version.
template <typename T>
Status CopyIn(const char* name, const T* host, size_t first_size, T* to) {
  PAGEMILL_RETURN_IF_ERROR(CheckSize(name, host, first_size));
  std::memcpy(static_cast<void*>(to), host, host->struct_size);
  return OkStatus();
}

// Checks an array of the host before it is read; `name` is its field.
template <typename T>
Status CheckArray(const char* name, const T* items, size_t count, size_t max_count) {
  if (count > max_count) {
    return InvalidArgument(std::string(name) + " has " + std::to_string(count) +
                           " entries; it may have " + std::to_string(max_count));
  }
  if (items != nullptr || count == 0) return OkStatus();
  return InvalidArgument(std::string(name) + " is NULL");
}

// Copies the fields of the host's version from `from`. Call CheckSize() first.
template <typename T>
void CopyOut(T from, T* host) {
  from.struct_size = host->struct_size;
  std::memcpy(static_cast<void*>(host), &from, host->struct_size);
}

}  // namespace pagemill::capi

#endif  // PAGEMILL_CC_CAPI_VERSIONED_H_
