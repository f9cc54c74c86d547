// File: cc/bindings/python_matcher.h
// Token matchers that are Python objects. They are called by the runner's thread that fills masks,
// which takes the GIL for each call and no longer; an exception fails the request with its message.
#ifndef PAGEMILL_CC_BINDINGS_PYTHON_MATCHER_H_
#define PAGEMILL_CC_BINDINGS_PYTHON_MATCHER_H_

#include <nanobind/nanobind.h>

#include "cc/step/token_matcher.h"

namespace pagemill::bindings {

// `new_matcher()` returns an object with
//   fill_mask(mask)      writes all of `mask`, uint32 [words] (cc/step/token_mask.h), valid during
//                        the call
//   accept(token_id)     returns whether the token may come next
//   rollback(num_tokens)
//   forced(most)         returns tokens that have to come next, `most` at most
// that keeps the obligations of step::TokenMatcher. If it is a MatcherFactory, its matchers are
// used as they are, without Python.
step::TokenMatcherFactory PythonMatcherFactory(nanobind::callable new_matcher);

}  // namespace pagemill::bindings

#endif  // PAGEMILL_CC_BINDINGS_PYTHON_MATCHER_H_
