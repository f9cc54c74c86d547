// File: cc/program/weights/weight_recipe.h
// The source of a weight's bytes as a text: the stored bytes, or the weights and the method that it
// is made from. Weights with equal text have the same bytes, in this program or another.
//
//   const std::vector<std::string> names = FileNames(program, weights);
//   WeightRecipe(program, id, WeightParts::kValues, names)   // "stack 2 8812 4096 512 ..."
//
// A file is identified by its content (digest) or, within a process, by its file system metadata.
// Pure functions; thread-safe.
#ifndef PAGEMILL_CC_PROGRAM_WEIGHTS_WEIGHT_RECIPE_H_
#define PAGEMILL_CC_PROGRAM_WEIGHTS_WEIGHT_RECIPE_H_

#include <span>
#include <string>
#include <vector>

#include "cc/base/xxh3.h"
#include "cc/program/program.h"
#include "cc/program/weights/weights.h"

namespace pagemill::program {

// A name per file of the program, in order: metadata of a file (FileIdentity), the digest of
// constants.
std::vector<std::string> FileNames(const Program& program, const Weights& weights);
// Likewise from digests (weight_digests.h).
std::vector<std::string> FileNames(std::span<const Digest128> digests);

// Parts of a quantized weight.
enum class WeightParts { kValues, kAll };

std::string WeightRecipe(const Program& program, ValueId weight, WeightParts parts,
                         std::span<const std::string> file_names);

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_WEIGHTS_WEIGHT_RECIPE_H_
