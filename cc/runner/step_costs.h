// File: cc/runner/step_costs.h
// The cost of a decode step by its number of tokens, learned from the steps that ran. It decides
// how many drafts are worth verifying.
//
//   StepCosts costs;
//   costs.Observe(/*num_tokens=*/1, /*seconds=*/0.005);
//   costs.Of(4)  // about 0.0065, until a step with 4 tokens was observed
//
// Each size has an average that follows faster steps quickly and slower ones slowly, because other
// load on the machine only slows steps down. The average starts with the fastest of three steps,
// and is used only from then on if another size has three, too: otherwise a single slow step, such
// as the first of a process, would keep its size from being chosen again. Sizes without steps are
// interpolated between their neighbours; beyond them a token costs a tenth of a step with one
// token, which is about right for a model whose weights come from memory, and too much for an
// accelerator, until a step shows it.
//
// Times grow with the size: Of(n) is at most Of(n + 1).
//
// Both are O(sizes), about 100 for 10,000 tokens. Thread safety: none.
#ifndef PAGEMILL_CC_RUNNER_STEP_COSTS_H_
#define PAGEMILL_CC_RUNNER_STEP_COSTS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pagemill::runner {

class StepCosts {
 public:
  // A step with `num_tokens`, at least 1, took `seconds`, more than 0.
  void Observe(int32_t num_tokens, double seconds);
  // True if any step was observed.
  bool measured() const { return !sizes_.empty(); }
  // Seconds; in an arbitrary unit before the first Observe().
  double Of(int32_t num_tokens) const;

 private:
  // Sizes up to 16 tokens by themselves, then eight to a power of two.
  static size_t SizeOf(int32_t num_tokens);
  static int32_t TokensOf(size_t size);  // the fewest

  struct Size {
    double seconds = 0.0;
    int32_t num_steps = 0;  // up to those that the average begins with
  };
  std::vector<Size> sizes_;
  int32_t fewest_steps_ = 1;  // of a size that counts
};

}  // namespace pagemill::runner

#endif  // PAGEMILL_CC_RUNNER_STEP_COSTS_H_
