/* Declares by itself what the first header of ABI version 1 had, and does not include pagemill.h:
 * this file never changes. Behind each struct lie bytes that the library must not touch. */
#include "cc/capi/abi/first_host.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct pagemill_engine pagemill_engine;

typedef struct {
  size_t struct_size;
  const char* program_path;
  int32_t num_threads;
  int32_t max_model_len;
  int32_t max_num_tokens;
  int32_t max_num_seqs;
  int32_t max_num_logits_rows;
  int32_t num_blocks;
  int32_t block_size;
  int32_t max_waiting_requests;
  const char* kv_cache_dtype;
} FirstOptions;

typedef struct {
  size_t struct_size;
  float temperature;
  int32_t top_k;
  float top_p;
  float min_p;
  float presence_penalty;
  float frequency_penalty;
  float repetition_penalty;
  uint64_t seed;
  int32_t max_tokens;
  int32_t min_tokens;
  const int32_t* stop_token_ids;
  size_t num_stop_token_ids;
} FirstParams;

typedef struct {
  size_t struct_size;
  uint64_t request_id;
  const int32_t* token_ids;
  size_t num_tokens;
  int32_t finish_reason;
  int32_t num_cached_tokens;
  int32_t error;
  int32_t stop_token_id;
} FirstOutput;

typedef struct {
  size_t struct_size;
  uint64_t num_running;
  uint64_t num_waiting;
  uint64_t num_used_blocks;
  uint64_t num_blocks;
} FirstStats;

extern int32_t pagemill_abi_version(void);
extern void pagemill_engine_options_init(FirstOptions* options, size_t struct_size);
extern void pagemill_sampling_params_init(FirstParams* params, size_t struct_size);
extern void pagemill_output_init(FirstOutput* output, size_t struct_size);
extern void pagemill_stats_init(FirstStats* stats, size_t struct_size);
extern int pagemill_engine_create(const FirstOptions* options, pagemill_engine** engine);
extern void pagemill_engine_destroy(pagemill_engine* engine);
extern int pagemill_engine_submit(pagemill_engine* engine, uint64_t request_id,
                                  const int32_t* prompt_token_ids, size_t num_prompt_tokens,
                                  const FirstParams* params);
extern int pagemill_engine_abort(pagemill_engine* engine, uint64_t request_id);
extern int pagemill_engine_next(pagemill_engine* engine, double timeout_s, FirstOutput* output);
extern int pagemill_engine_stats(const pagemill_engine* engine, FirstStats* stats);
extern const char* pagemill_last_error(void);

typedef struct {
  FirstOptions options;
  unsigned char behind_options[64];
  FirstParams params;
  unsigned char behind_params[64];
  FirstOutput output;
  unsigned char behind_output[256];
  FirstStats stats;
  unsigned char behind_stats[256];
} Structs;

static int Untouched(const unsigned char* bytes, size_t size) {
  for (size_t i = 0; i < size; ++i) {
    if (bytes[i] != 0xa5) return 0;
  }
  return 1;
}

static const char* Generate(pagemill_engine* engine, int token, Structs* s, int tokens[8]) {
  const int32_t prompt = token;
  s->params.temperature = 0.0f;
  s->params.max_tokens = 8;
  if (pagemill_engine_submit(engine, 77, &prompt, 1, &s->params) != 0) return pagemill_last_error();
  size_t count = 0;
  do {
    if (pagemill_engine_next(engine, 20.0, &s->output) != 0) return pagemill_last_error();
    if (s->output.request_id != 77) return "news of a request that was not submitted";
    for (size_t i = 0; i < s->output.num_tokens && count < 8; ++i) {
      tokens[count++] = s->output.token_ids[i];
    }
  } while (s->output.finish_reason == 0);
  if (count != 8 || s->output.finish_reason != 2) return "not 8 tokens with finish reason length";
  if (s->output.error != 0 || s->output.stop_token_id != -1) return "output has other values";
  if (pagemill_engine_stats(engine, &s->stats) != 0) return pagemill_last_error();
  if (s->stats.num_running != 0 || s->stats.num_blocks == 0) return "stats have other values";
  return NULL;
}

const char* FirstHostGenerate(const char* path, int token, int tokens[8]) {
  Structs s;
  memset(&s, 0xa5, sizeof(s));
  if (pagemill_abi_version() != 1) return "the library's ABI version is not 1";
  pagemill_engine_options_init(&s.options, sizeof(s.options));
  pagemill_sampling_params_init(&s.params, sizeof(s.params));
  pagemill_output_init(&s.output, sizeof(s.output));
  pagemill_stats_init(&s.stats, sizeof(s.stats));
  s.options.program_path = path;
  s.options.num_threads = 1;
  s.options.max_model_len = 64;
  pagemill_engine* engine = NULL;
  if (pagemill_engine_create(&s.options, &engine) != 0) return pagemill_last_error();
  const char* wrong = Generate(engine, token, &s, tokens);
  pagemill_engine_abort(engine, 77);
  pagemill_engine_destroy(engine);
  if (wrong == NULL && (!Untouched(s.behind_options, sizeof(s.behind_options)) ||
                        !Untouched(s.behind_params, sizeof(s.behind_params)) ||
                        !Untouched(s.behind_output, sizeof(s.behind_output)) ||
                        !Untouched(s.behind_stats, sizeof(s.behind_stats)))) {
    wrong = "the library wrote behind a struct";
  }
  return wrong;
}
