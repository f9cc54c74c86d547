// File: cc/program/weights/weight_recipe.h
// Which bytes a weight has, or of which it is made and how, as a text: weights with one text have
// the same bytes, in this program or in another.
//
//   const std::vector<std::string> names = FileNames(program, weights);
//   WeightRecipe(program, id, WeightParts::kValues, names)   // "stack 2 8812 4096 512 ..."
//
// A file is named by what it contains (its digest), or, within a process, by what the file system
// says of it. Pure functions; thread-safe.
#ifndef PAGEMILL_CC_PROGRAM_WEIGHTS_WEIGHT_RECIPE_H_
#define PAGEMILL_CC_PROGRAM_WEIGHTS_WEIGHT_RECIPE_H_

#include <span>
#include <string>
#include <vector>

#include "cc/base/xxh3.h"
#include "cc/program/program.h"
#include "cc/program/weights/weights.h"

namespace pagemill::program {

// A name for each of the program's files, in their order: what the file system says of a file
// (FileIdentity), the digest of constants.
std::vector<std::string> FileNames(const Program& program, const Weights& weights);
// The same of digests (weight_digests.h).
std::vector<std::string> FileNames(std::span<const Digest128> digests);

// Of a quantized weight.
enum class WeightParts { kValues, kAll };

std::string WeightRecipe(const Program& program, ValueId weight, WeightParts parts,
                         std::span<const std::string> file_names);

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_WEIGHTS_WEIGHT_RECIPE_H_
