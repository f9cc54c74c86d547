/* Uses a real model through the C ABI: prints the greedy tokens after a prompt with their log
 * probabilities, then saves the session, sleeps, wakes, takes the weights again, and goes on in a
 * second engine from the saved session.
 *
 *   c_host PROGRAM SESSION_FILE TOKEN_ID...
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "cc/capi/pagemill.h"

#define MAX_TOKENS 64

static void Check(pagemill_status status, const char* what) {
  if (status == PAGEMILL_OK) return;
  fprintf(stderr, "c_host: %s: %d %s\n", what, (int)status, pagemill_last_error());
  exit(1);
}

static pagemill_engine* Create(const char* program) {
  pagemill_engine_options options;
  pagemill_engine_options_init(&options, sizeof(options));
  options.program_path = program;
  options.max_model_len = 256;
  options.max_num_tokens = 64;
  options.max_num_seqs = 2;
  options.max_num_logits_rows = 2;
  pagemill_engine* engine = NULL;
  Check(pagemill_engine_create(&options, &engine), "create");
  return engine;
}

static void Generate(pagemill_engine* engine, const pagemill_request* request) {
  pagemill_output output;
  pagemill_output_init(&output, sizeof(output));
  struct pollfd wait = {-1, POLLIN, 0};
  Check(pagemill_engine_output_fd(engine, &wait.fd), "output_fd");
  Check(pagemill_engine_submit_request(engine, request), "submit");
  do {
    const pagemill_status status = pagemill_engine_next(engine, 0, &output);
    if (status == PAGEMILL_DEADLINE_EXCEEDED) {
      poll(&wait, 1, 10000);
      output.finish_reason = PAGEMILL_NOT_FINISHED;
      continue;
    }
    Check(status, "next");
    for (size_t i = 0; i < output.num_tokens; ++i) {
      printf("%d:%.3f ", (int)output.token_ids[i], output.logprobs[i].logprob);
    }
  } while (output.finish_reason == PAGEMILL_NOT_FINISHED);
  printf("cached %d\n", (int)output.num_cached_tokens);
}

int main(int argc, char** argv) {
  if (argc < 4 || argc > 3 + MAX_TOKENS) return 2;
  int32_t prompt[MAX_TOKENS];
  for (int i = 3; i < argc; ++i) prompt[i - 3] = atoi(argv[i]);
  pagemill_sampling_params sampling;
  pagemill_sampling_params_init(&sampling, sizeof(sampling));
  sampling.temperature = 0.0f;
  sampling.max_tokens = 8;
  sampling.logprobs = 1;
  pagemill_request request;
  pagemill_request_init(&request, sizeof(request));
  request.prompt_token_ids = prompt;
  request.num_prompt_tokens = (size_t)argc - 3;
  request.sampling = &sampling;

  pagemill_engine* engine = Create(argv[1]);
  Generate(engine, &request);
  int32_t num_tokens = 0;
  Check(pagemill_engine_save_session(engine, argv[2], &request, &num_tokens), "save");
  Check(pagemill_engine_sleep(engine, 1, 60.0), "sleep");
  Check(pagemill_engine_wake(engine, 60.0), "wake");
  Check(pagemill_engine_update_weights(engine, argv[1], 60.0), "update_weights");
  Generate(engine, &request);
  pagemill_engine_destroy(engine);

  engine = Create(argv[1]);
  int32_t tokens[MAX_TOKENS];
  size_t count = 0;
  Check(pagemill_engine_restore_session(engine, argv[2], NULL, tokens, MAX_TOKENS, &count,
                                        &num_tokens),
        "restore");
  request.prompt_token_ids = tokens;
  request.num_prompt_tokens = count;
  Generate(engine, &request);
  pagemill_engine_destroy(engine);
  return 0;
}
