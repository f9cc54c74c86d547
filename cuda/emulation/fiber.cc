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
thread_local Fiber::Stack host;
thread_local Fiber::Stack* left = nullptr;  // by the last switch
thread_local Fiber* entering = nullptr;     // for Entry(), which takes no argument

bool HasAddressSanitizer() { return __sanitizer_start_switch_fiber != nullptr; }

// The stack that runs has been switched to; AddressSanitizer says what was left.
void Arrive(void* fake_stack) {
  if (!HasAddressSanitizer()) return;
  __sanitizer_finish_switch_fiber(fake_stack, &left->begin, &left->bytes);
}

// Returns when `from` is switched to, which never happens if this is its last switch.
void Switch(Fiber::Stack& from, const Fiber::Stack& to, bool is_last = false) {
  if (HasAddressSanitizer()) {
    __sanitizer_start_switch_fiber(is_last ? nullptr : &from.fake_stack, to.begin, to.bytes);
  }
  left = &from;
  PagemillSwitchStack(&from.pointer, to.pointer);
  Arrive(from.fake_stack);
}

}  // namespace

Fiber::Fiber() : memory_(std::make_unique_for_overwrite<std::byte[]>(kStackBytes)) {}

void Fiber::Start(const std::function<void()>& body) {
  if (!finished_ && HasAddressSanitizer()) {  // a run that finished has left nothing
    __asan_unpoison_memory_region(memory_.get(), kStackBytes);
  }
  body_ = &body;
  finished_ = false;
  const uintptr_t end = reinterpret_cast<uintptr_t>(memory_.get() + kStackBytes);
  void** top = reinterpret_cast<void**>(end & ~uintptr_t{15});
  *--top = nullptr;  // keeps the stack aligned at Entry(), which never returns
  *--top = reinterpret_cast<void*>(&Fiber::Entry);
  for (int i = 0; i < kSavedRegisters; ++i) *--top = nullptr;
  stack_ = {.pointer = top, .begin = memory_.get(), .bytes = kStackBytes};
}

void Fiber::Entry() {
  Fiber& fiber = *entering;
  Arrive(nullptr);
  (*fiber.body_)();
  fiber.finished_ = true;
  Switch(fiber.stack_, host, /*is_last=*/true);
  std::abort();
}

void Fiber::Resume() {
  entering = this;
  Switch(host, stack_);
}

void Fiber::Suspend() { Switch(stack_, host); }

void Fiber::SwitchTo(Fiber& other) {
  entering = &other;
  Switch(stack_, other.stack_);
}

}  // namespace pagemill::gpu::emulation
