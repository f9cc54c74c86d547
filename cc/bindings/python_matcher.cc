#include "cc/bindings/python_matcher.h"

#include <nanobind/stl/vector.h>

#include <memory>
#include <utility>
#include <vector>

#include "cc/bindings/gil.h"
#include "cc/bindings/matcher_factory.h"
#include "cc/bindings/python_object.h"

namespace pagemill::bindings {

namespace nb = nanobind;

namespace {

constexpr char kWhat[] = "the request's token matcher";

class PythonMatcher final : public step::TokenMatcher {
 public:
  explicit PythonMatcher(nb::object matcher)
      : fill_mask_(matcher.attr("fill_mask")),
        accept_(matcher.attr("accept")),
        rollback_(matcher.attr("rollback")),
        forced_(matcher.attr("forced")) {}

  Status FillMask(std::span<uint32_t> mask) override {
    Gil gil;
    if (!failure_.ok()) return failure_;
    return Guarded(kWhat, [&]() -> Status {
      fill_mask_.get()(ArrayOf(mask));
      return OkStatus();
    });
  }

  bool Accept(int32_t token_id) override {
    bool accepted = false;
    Keep([&] { accepted = nb::cast<bool>(accept_.get()(token_id)); });
    return accepted;
  }

  void Rollback(int32_t num_tokens) override {
    Keep([&] { rollback_.get()(num_tokens); });
  }

  void AppendForced(size_t most, std::vector<int32_t>* token_ids) override {
    Keep([&] {
      auto forced = nb::cast<std::vector<int32_t>>(forced_.get()(most));
      if (forced.size() > most) forced.resize(most);
      token_ids->insert(token_ids->end(), forced.begin(), forced.end());
    });
  }

 private:
  // A failure of a call that returns none is that of the next FillMask().
  template <typename Call>
  void Keep(const Call& call) {
    Gil gil;
    const Status status = Guarded(kWhat, [&]() -> Status {
      call();
      return OkStatus();
    });
    if (failure_.ok()) failure_ = status;
  }

  const SharedObject fill_mask_, accept_, rollback_, forced_;
  Status failure_;
};

}  // namespace

step::TokenMatcherFactory PythonMatcherFactory(nb::callable new_matcher) {
  if (nb::isinstance<MatcherFactory>(new_matcher)) {
    return nb::cast<const MatcherFactory&>(new_matcher).make;
  }
  auto shared = std::make_shared<const SharedObject>(std::move(new_matcher));
  return [shared]() -> StatusOr<std::unique_ptr<step::TokenMatcher>> {
    Gil gil;
    return Guarded(kWhat, [&]() -> StatusOr<std::unique_ptr<step::TokenMatcher>> {
      return std::unique_ptr<step::TokenMatcher>(new PythonMatcher(shared->get()()));
    });
  };
}

}  // namespace pagemill::bindings
