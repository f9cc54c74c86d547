// Prints the token ids of a text, for the test that compares them with those of the server.
//
//   print_tokens model.vocabulary "The capital of France is"
#include <cstdio>

#include "bpe.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const auto bpe = pagemill::examples::Bpe::Load(argv[1]);
  if (!bpe.ok()) {
    std::fprintf(stderr, "%s\n", bpe.status().ToString().c_str());
    return 1;
  }
  for (const int id : bpe->Encode(argv[2])) std::printf("%d ", id);
  return 0;
}
