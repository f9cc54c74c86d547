/* File: cc/capi/pagemill.h
 * The C ABI of the engine: load a program (`pagemill export`), submit token ids, read tokens. No
 * function throws or aborts on bad input; each returns a pagemill_status, and pagemill_last_error()
 * gives the sentence that goes with it.
 *
 *   pagemill_engine_options options;
 *   pagemill_engine_options_init(&options);
 *   options.program_path = "model.program";
 *   pagemill_engine* engine = NULL;
 *   if (pagemill_engine_create(&options, &engine) != PAGEMILL_OK) puts(pagemill_last_error());
 *   pagemill_sampling_params sampling;
 *   pagemill_sampling_params_init(&sampling);
 *   pagemill_engine_submit(engine, 1, prompt, num_prompt_tokens, &sampling);
 *   pagemill_output output;
 *   do {
 *     if (pagemill_engine_next(engine, 1.0, &output) != PAGEMILL_OK) break;
 *     for (size_t i = 0; i < output.num_tokens; ++i) use(output.token_ids[i]);
 *   } while (output.finish_reason == PAGEMILL_NOT_FINISHED);
 *   pagemill_engine_destroy(engine);
 *
 * Compatibility: structs begin with their size and only ever grow at the end; *_init() fills it in.
 * Enumerators keep their values. A host built against an older header works with a newer library of
 * the same ABI version. Thread safety: submit, abort and stats from any thread; next from one
 * thread at a time.
 */
#ifndef PAGEMILL_CC_CAPI_PAGEMILL_H_
#define PAGEMILL_CC_CAPI_PAGEMILL_H_

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define PAGEMILL_API __attribute__((visibility("default")))
#else
#define PAGEMILL_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define PAGEMILL_ABI_VERSION 1

typedef enum pagemill_status {
  PAGEMILL_OK = 0,
  PAGEMILL_INVALID_ARGUMENT = 1,
  PAGEMILL_NOT_FOUND = 2,
  PAGEMILL_RESOURCE_EXHAUSTED = 3,
  PAGEMILL_DEADLINE_EXCEEDED = 4, /* pagemill_engine_next: nothing came within the timeout */
  PAGEMILL_UNAVAILABLE = 5,
  PAGEMILL_UNIMPLEMENTED = 6,
  PAGEMILL_FAILED_PRECONDITION = 7,
  PAGEMILL_CANCELLED = 8,
  PAGEMILL_INTERNAL = 9,
  PAGEMILL_DATA_LOSS = 10
} pagemill_status;

typedef enum pagemill_finish_reason {
  PAGEMILL_NOT_FINISHED = 0,
  PAGEMILL_FINISH_STOP = 1,
  PAGEMILL_FINISH_LENGTH = 2,
  PAGEMILL_FINISH_ABORT = 3,
  PAGEMILL_FINISH_ERROR = 4
} pagemill_finish_reason;

typedef struct pagemill_engine pagemill_engine;

typedef struct pagemill_engine_options {
  size_t struct_size;
  const char* program_path;    /* text of a program; required */
  int32_t num_threads;         /* 0 = one per core */
  int32_t max_model_len;       /* tokens of one request, prompt and output */
  int32_t max_num_tokens;      /* tokens of one step */
  int32_t max_num_seqs;        /* requests of one step */
  int32_t max_num_logits_rows; /* rows of logits of one step */
  int32_t
      num_blocks; /* KV blocks of block_size tokens; 0 = room for one request of max_model_len */
  int32_t block_size;           /* tokens */
  const char* kv_cache_dtype;   /* "bf16" or "f32" */
  int32_t max_waiting_requests; /* more are refused with PAGEMILL_RESOURCE_EXHAUSTED */
} pagemill_engine_options;

typedef struct pagemill_sampling_params {
  size_t struct_size;
  float temperature; /* 0 = greedy */
  int32_t top_k;     /* 0 = off */
  float top_p;
  float min_p;
  float presence_penalty;
  float frequency_penalty;
  float repetition_penalty;
  uint64_t seed;
  int32_t max_tokens;
  int32_t min_tokens;
  const int32_t* stop_token_ids; /* end-of-sequence ids included; copied by submit */
  size_t num_stop_token_ids;
} pagemill_sampling_params;

typedef struct pagemill_output {
  uint64_t request_id;
  const int32_t* token_ids; /* new tokens; valid until the next call of pagemill_engine_next */
  size_t num_tokens;
  int32_t finish_reason;     /* a pagemill_finish_reason */
  int32_t num_cached_tokens; /* prompt tokens that came from the prefix cache */
  int32_t error;             /* a pagemill_status, where finish_reason is PAGEMILL_FINISH_ERROR */
} pagemill_output;

typedef struct pagemill_stats {
  uint64_t num_running;
  uint64_t num_waiting;
  uint64_t num_used_blocks;
  uint64_t num_blocks;
} pagemill_stats;

/* PAGEMILL_ABI_VERSION of the library. */
PAGEMILL_API int32_t pagemill_abi_version(void);
/* The sentence of this thread's last call that failed; "" before the first. Valid until the next
 * call that fails. */
PAGEMILL_API const char* pagemill_last_error(void);

/* Fill in the size and the defaults. */
PAGEMILL_API void pagemill_engine_options_init(pagemill_engine_options* options);
PAGEMILL_API void pagemill_sampling_params_init(pagemill_sampling_params* params);

PAGEMILL_API pagemill_status pagemill_engine_create(const pagemill_engine_options* options,
                                                    pagemill_engine** engine);
/* Aborts what runs and waits for the step in flight. NULL is ignored. */
PAGEMILL_API void pagemill_engine_destroy(pagemill_engine* engine);

/* request_id is the caller's choice, unique among unfinished requests. The arrays are copied. */
PAGEMILL_API pagemill_status pagemill_engine_submit(pagemill_engine* engine, uint64_t request_id,
                                                    const int32_t* prompt_token_ids,
                                                    size_t num_prompt_tokens,
                                                    const pagemill_sampling_params* params);
PAGEMILL_API pagemill_status pagemill_engine_abort(pagemill_engine* engine, uint64_t request_id);
/* Waits up to timeout_s seconds for news of any request: PAGEMILL_OK, or
 * PAGEMILL_DEADLINE_EXCEEDED. */
PAGEMILL_API pagemill_status pagemill_engine_next(pagemill_engine* engine, double timeout_s,
                                                  pagemill_output* output);
PAGEMILL_API pagemill_status pagemill_engine_stats(const pagemill_engine* engine,
                                                   pagemill_stats* stats);

#ifdef __cplusplus
}
#endif

#endif /* PAGEMILL_CC_CAPI_PAGEMILL_H_ */
