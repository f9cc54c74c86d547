// File: sycl/device/testing/cpu_device.h
// The CPU as a SYCL device, for tests: names Intel's OpenCL CPU device to the runtime, unless the
// environment names others, and opens it. Aborts with the reason if that fails. Test code only.
//
//   const std::unique_ptr<SyclDevice> device = OpenCpuDevice();
#ifndef PAGEMILL_SYCL_DEVICE_TESTING_CPU_DEVICE_H_
#define PAGEMILL_SYCL_DEVICE_TESTING_CPU_DEVICE_H_

#include <memory>

#include "sycl/device/sycl_device.h"

namespace pagemill::sycl::testing {

std::unique_ptr<SyclDevice> OpenCpuDevice();

}  // namespace pagemill::sycl::testing

#endif  // PAGEMILL_SYCL_DEVICE_TESTING_CPU_DEVICE_H_
