#include "cuda/emulation/fiber.h"

#include <cstdint>
#include <cstdlib>

// AddressSanitizer's, in programs that are linked with it: kernels and tests are compiled for it,
// this file need not be.
extern "C" {
[[gnu::weak]] void __asan_unpoison_memory_region(const volatile void* begin, size_t bytes);
[[gnu::weak]] void __sanitizer_start_switch_fiber(void** fake_stack, const void* stack,
                                                  size_t bytes);
[[gnu::weak]] void __sanitizer_finish_switch_fiber(void* fake_stack, const void** stack,
                                                   size_t* bytes);
}

// Saves the registers that a call preserves (System V ABI), swaps stacks, restores.
extern "C" void PagemillSwitchStack(void** from, void* to);
asm(R"(
.text
.type PagemillSwitchStack, @function
PagemillSwitchStack:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
.size PagemillSwitchStack, .-PagemillSwitchStack
)");

namespace pagemill::gpu::emulation {
namespace {

constexpr int kSavedRegisters = 6;
thread_local Fiber* entering = nullptr;  // for Entry(), which takes no argument

bool HasAddressSanitizer() { return __sanitizer_start_switch_fiber != nullptr; }

}  // namespace

Fiber::Fiber() : stack_(std::make_unique_for_overwrite<std::byte[]>(kStackBytes)) {}

void Fiber::Start(const std::function<void()>& body) {
  if (HasAddressSanitizer()) {
    __asan_unpoison_memory_region(stack_.get(), kStackBytes);  // of a run that did not finish
  }
  body_ = &body;
  finished_ = false;
  fake_stack_ = nullptr;
  const uintptr_t end = reinterpret_cast<uintptr_t>(stack_.get() + kStackBytes);
  void** top = reinterpret_cast<void**>(end & ~uintptr_t{15});
  *--top = nullptr;  // keeps the stack aligned at Entry(), which never returns
  *--top = reinterpret_cast<void*>(&Fiber::Entry);
  for (int i = 0; i < kSavedRegisters; ++i) *--top = nullptr;
  stack_pointer_ = top;
}

void Fiber::Entry() {
  Fiber& fiber = *entering;
  if (HasAddressSanitizer()) {
    __sanitizer_finish_switch_fiber(nullptr, &fiber.host_stack_, &fiber.host_stack_bytes_);
  }
  (*fiber.body_)();
  fiber.finished_ = true;
  fiber.SwitchToHost(/*last=*/true);
  std::abort();
}

void Fiber::Resume() {
  entering = this;
  void* host_fake_stack = nullptr;
  if (HasAddressSanitizer()) {
    __sanitizer_start_switch_fiber(&host_fake_stack, stack_.get(), kStackBytes);
  }
  PagemillSwitchStack(&host_stack_pointer_, stack_pointer_);
  if (HasAddressSanitizer()) __sanitizer_finish_switch_fiber(host_fake_stack, nullptr, nullptr);
}

void Fiber::SwitchToHost(bool last) {
  if (HasAddressSanitizer()) {
    __sanitizer_start_switch_fiber(last ? nullptr : &fake_stack_, host_stack_, host_stack_bytes_);
  }
  PagemillSwitchStack(&stack_pointer_, host_stack_pointer_);
  if (HasAddressSanitizer()) {
    __sanitizer_finish_switch_fiber(fake_stack_, &host_stack_, &host_stack_bytes_);
  }
}

}  // namespace pagemill::gpu::emulation
