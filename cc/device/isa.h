// File: cc/device/isa.h
// Fills the instruction set fields of CpuCapabilities; DetectCapabilities() adds the core count.
#ifndef PAGEMILL_CC_DEVICE_ISA_H_
#define PAGEMILL_CC_DEVICE_ISA_H_

#include "cc/device/capabilities.h"

namespace pagemill::device {

// Reads CPUID and XCR0 (x86-64) or the kernel's hwcaps (aarch64, s390x) of the running machine. On
// x86-64 it requests permission to use AMX tile data for the whole process.
void DetectIsa(CpuCapabilities& caps);

}  // namespace pagemill::device

#endif  // PAGEMILL_CC_DEVICE_ISA_H_
