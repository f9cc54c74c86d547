/* Generates tokens from C: nothing but pagemill.h and libpagemill.so. Token ids come from, and go
 * to, a tokenizer of the host's own. It waits on a descriptor, as the event loop of a host with
 * other work would. The log probability of all tokens goes to stderr.
 *
 *   pagemill export --output /tmp/smollm2
 *   embed_c /tmp/smollm2/model.program 8 504 3575 282 4649 314
 */
#include <pagemill.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_PROMPT_TOKENS 256

static int Fail(const char* what) {
  fprintf(stderr, "embed_c: %s: %s\n", what, pagemill_last_error());
  return 1;
}

/* Prints the tokens of request 1 as they come. */
static int PrintTokens(pagemill_engine* engine) {
  pagemill_output output;
  pagemill_output_init(&output, sizeof(output));
  struct pollfd outputs = {-1, POLLIN, 0};
  if (pagemill_engine_output_fd(engine, &outputs.fd) != PAGEMILL_OK) return Fail("output_fd");
  double logprob = 0;
  do {
    const pagemill_status status = pagemill_engine_next(engine, 0, &output);
    if (status == PAGEMILL_DEADLINE_EXCEEDED) { /* none wait: sleep until some do */
      poll(&outputs, 1, -1);
      output.finish_reason = PAGEMILL_NOT_FINISHED;
      continue;
    }
    if (status != PAGEMILL_OK) return Fail("next");
    for (size_t i = 0; i < output.num_tokens; ++i) printf("%d ", (int)output.token_ids[i]);
    for (size_t i = 0; i < output.num_logprobs; ++i) logprob += output.logprobs[i].logprob;
    fflush(stdout);
  } while (output.finish_reason == PAGEMILL_NOT_FINISHED);
  printf("\n");
  fprintf(stderr, "log probability %.4f\n", logprob);
  return output.finish_reason == PAGEMILL_FINISH_ERROR ? Fail("generate") : 0;
}

int main(int argc, char** argv) {
  if (argc < 4 || argc > 3 + MAX_PROMPT_TOKENS) {
    fprintf(stderr, "usage: %s PROGRAM MAX_TOKENS TOKEN_ID...\n", argv[0]);
    return 2;
  }
  int32_t prompt[MAX_PROMPT_TOKENS];
  const size_t num_prompt_tokens = (size_t)argc - 3;
  for (size_t i = 0; i < num_prompt_tokens; ++i) prompt[i] = atoi(argv[3 + i]);

  pagemill_engine_options options;
  pagemill_engine_options_init(&options, sizeof(options));
  options.program_path = argv[1];
  options.max_model_len = 1024;
  options.max_num_tokens = 512;
  options.max_num_seqs = 4;
  options.max_num_logits_rows = 4;
  pagemill_engine* engine = NULL;
  if (pagemill_engine_create(&options, &engine) != PAGEMILL_OK) return Fail("create");

  pagemill_sampling_params sampling;
  pagemill_sampling_params_init(&sampling, sizeof(sampling));
  sampling.temperature = 0.0f;
  sampling.max_tokens = atoi(argv[2]);
  sampling.logprobs = 0; /* of the chosen tokens */
  int code;
  if (pagemill_engine_submit(engine, 1, prompt, num_prompt_tokens, &sampling) != PAGEMILL_OK) {
    code = Fail("submit");
  } else {
    code = PrintTokens(engine);
  }
  pagemill_engine_destroy(engine);
  return code;
}
