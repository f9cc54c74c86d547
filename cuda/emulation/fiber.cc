#include "cuda/emulation/fiber.h"

#include <cstdint>
#include <cstdlib>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

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

}  // namespace

Fiber::Fiber() : stack_(std::make_unique_for_overwrite<std::byte[]>(kStackBytes)) {}

void Fiber::Start(const std::function<void()>& body) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(stack_.get(), kStackBytes);  // of a run that did not finish
#endif
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
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &fiber.host_stack_, &fiber.host_stack_bytes_);
#endif
  (*fiber.body_)();
  fiber.finished_ = true;
  fiber.SwitchToHost(/*last=*/true);
  std::abort();
}

void Fiber::Resume() {
  entering = this;
#if defined(__SANITIZE_ADDRESS__)
  void* host_fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&host_fake_stack, stack_.get(), kStackBytes);
#endif
  PagemillSwitchStack(&host_stack_pointer_, stack_pointer_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(host_fake_stack, nullptr, nullptr);
#endif
}

void Fiber::SwitchToHost([[maybe_unused]] bool last) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(last ? nullptr : &fake_stack_, host_stack_, host_stack_bytes_);
#endif
  PagemillSwitchStack(&stack_pointer_, host_stack_pointer_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_stack_, &host_stack_, &host_stack_bytes_);
#endif
}

}  // namespace pagemill::gpu::emulation
