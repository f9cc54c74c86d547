// File: cc/bindings/matcher_factory.h
// A factory of token matchers that are C++, as Python holds it.
#ifndef PAGEMILL_CC_BINDINGS_MATCHER_FACTORY_H_
#define PAGEMILL_CC_BINDINGS_MATCHER_FACTORY_H_

#include "cc/step/token_matcher.h"

namespace pagemill::bindings {

// A request that has one is constrained without a call into Python. Python may call it, too, for
// matchers that others wrap.
struct MatcherFactory {
  step::TokenMatcherFactory make;
};

}  // namespace pagemill::bindings

#endif  // PAGEMILL_CC_BINDINGS_MATCHER_FACTORY_H_
