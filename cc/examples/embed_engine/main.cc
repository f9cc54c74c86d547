// Generates text from a model without Python in the process. Reads the two files that `pagemill
// export` wrote: the program (which contains the locations of the weights) and the vocabulary.
//
//   pagemill export --output /tmp/smollm2
//   embed_engine /tmp/smollm2 "The capital of France is" 24
#include <cstdio>
#include <cstdlib>
#include <string>

#include "bpe.h"
#include "pagemill/capi/host.h"

namespace {

using pagemill::capi::Host;
using pagemill::examples::Bpe;

// Submits one greedy request and writes its text to standard output as it arrives.
pagemill::Status Generate(const std::string& folder, const std::string& prompt, int max_tokens) {
  PAGEMILL_ASSIGN_OR_RETURN(const Bpe bpe, Bpe::Load(folder + "/model.vocabulary"));

  pagemill::capi::HostOptions options;
  options.program_path = folder + "/model.program";
  options.max_model_len = 1024;
  options.executor.max_num_tokens = 512;
  options.executor.max_num_seqs = 4;
  options.executor.max_num_logits_rows = 4;
  options.executor.num_blocks = 0;
  PAGEMILL_ASSIGN_OR_RETURN(const std::unique_ptr<Host> host, Host::Create(std::move(options)));

  pagemill::step::Request request;
  request.id = pagemill::step::RequestId(1);
  request.prompt_token_ids = bpe.Encode(prompt);
  request.sampling.temperature = 0.0f;
  request.sampling.max_tokens = max_tokens;
  PAGEMILL_RETURN_IF_ERROR(host->engine().Submit(std::move(request)));

  std::fputs(prompt.c_str(), stdout);
  for (bool finished = false; !finished;) {
    for (const auto& output : host->engine().Wait(/*timeout_s=*/1.0)) {
      for (int32_t id : output.new_token_ids) std::fputs(bpe.Bytes(id).c_str(), stdout);
      std::fflush(stdout);
      PAGEMILL_RETURN_IF_ERROR(output.error);
      finished = output.finished();
    }
  }
  std::fputc('\n', stdout);
  return pagemill::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr,
                 "usage: %s FOLDER PROMPT [MAX_TOKENS]\n"
                 "FOLDER is what `pagemill export --output FOLDER` wrote.\n",
                 argv[0]);
    return 2;
  }
  const int max_tokens = argc > 3 ? std::atoi(argv[3]) : 32;
  const pagemill::Status status = Generate(argv[1], argv[2], max_tokens);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
