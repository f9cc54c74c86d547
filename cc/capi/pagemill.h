/* File: cc/capi/pagemill.h
 * The C ABI of the engine: load a program (`pagemill export`), submit token ids, read tokens. No
 * function throws or aborts on bad input; each returns a pagemill_status, and pagemill_last_error()
 * gives the sentence that goes with it.
 *
 *   pagemill_engine_options options;
 *   pagemill_engine_options_init(&options, sizeof(options));
 *   options.program_path = "model.program";
 *   pagemill_engine* engine = NULL;
 *   if (pagemill_engine_create(&options, &engine) != PAGEMILL_OK) puts(pagemill_last_error());
 *   pagemill_sampling_params sampling;
 *   pagemill_sampling_params_init(&sampling, sizeof(sampling));
 *   pagemill_engine_submit(engine, 1, prompt, num_prompt_tokens, &sampling);
 *   pagemill_output output;
 *   pagemill_output_init(&output, sizeof(output));
 *   do {
 *     if (pagemill_engine_next(engine, 1.0, &output) != PAGEMILL_OK) break;
 *     for (size_t i = 0; i < output.num_tokens; ++i) use(output.token_ids[i]);
 *   } while (output.finish_reason == PAGEMILL_NOT_FINISHED);
 *   pagemill_engine_destroy(engine);
 *
 * Compatibility: every struct begins with its size in the host's header, and only ever grows at the
 * end; *_init() fills in the size and the defaults. Enumerators keep their values; functions stay.
 * So a host built against an older header works with a newer library of the same ABI version: the
 * library neither reads nor writes what the host's structs do not have. cc/capi/abi/ has the layout
 * that a test holds the library to.
 *
 * Flags are int32_t, 0 or 1. Strings end with 0 and are copied. Thread safety: next from one thread
 * at a time; destroy when no other call runs; the rest from any thread.
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

/* What follows a part of the input of a request with streaming_input. */
typedef enum pagemill_input_part {
  PAGEMILL_INPUT_MORE = 0, /* more input of this turn: nothing is generated yet */
  PAGEMILL_INPUT_TURN = 1, /* nothing: the turn generates; then the request waits for its next */
  PAGEMILL_INPUT_LAST = 2  /* nothing: the turn generates; then the request ends */
} pagemill_input_part;

/* What becomes of the requests that the engine has when it pauses. */
typedef enum pagemill_pause_mode {
  PAGEMILL_PAUSE_KEEP = 0, /* no step is planned; who runs goes on afterwards */
  PAGEMILL_PAUSE_WAIT = 1, /* who started finishes; nobody else starts */
  PAGEMILL_PAUSE_ABORT = 2 /* all of them end */
} pagemill_pause_mode;

typedef struct pagemill_engine pagemill_engine;

typedef struct pagemill_engine_options {
  size_t struct_size;
  const char* program_path;     /* text of a program; required */
  int32_t num_threads;          /* 0 = one per core */
  int32_t max_model_len;        /* tokens of one request, prompt and output */
  int32_t max_num_tokens;       /* tokens of one step */
  int32_t max_num_seqs;         /* requests of one step */
  int32_t max_num_logits_rows;  /* rows of logits of one step */
  int32_t num_blocks;           /* of the KV cache; 0 = room for one request of max_model_len */
  int32_t block_size;           /* tokens */
  int32_t max_waiting_requests; /* more are refused with PAGEMILL_RESOURCE_EXHAUSTED */
  const char* kv_cache_dtype;   /* "bf16", "f32", "fp8" or "int8" */

  const char* scheduling_policy;        /* "fcfs", ...: docs/scheduling.md */
  const char* prefix_caching_hash;      /* "xxh3-128" or "sha256" */
  int32_t enable_prefix_caching;        /* flag */
  int32_t long_prefill_token_threshold; /* most tokens of one request in one step; 0 = no cap */
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

typedef struct pagemill_request {
  size_t struct_size;
  uint64_t request_id;             /* the caller's choice; reusable when its last output was read */
  const int32_t* prompt_token_ids; /* copied */
  size_t num_prompt_tokens;
  const pagemill_sampling_params* sampling; /* copied; NULL = the defaults */
  const char* tenant;     /* whose share policy "fair" charges; NULL or "" = the default tenant */
  const char* cache_salt; /* separates prefix-cache namespaces; NULL or "" = shared */
  int32_t priority;       /* lower runs earlier under policy "priority" */
  int32_t skip_reading_prefix_cache; /* flag */

  int32_t streaming_input; /* flag: the rest of the prompt comes by pagemill_engine_extend */
  int32_t starts_held;     /* flag: does not start before pagemill_engine_release */
  double start_timeout_s;  /* unless it starts in time, PAGEMILL_DEADLINE_EXCEEDED ends it; */
  double timeout_s;        /* the same, unless it ends in time; 0 = no limit */
} pagemill_request;

typedef struct pagemill_output {
  size_t struct_size;
  uint64_t request_id;
  const int32_t* token_ids; /* new tokens; valid until the next call of pagemill_engine_next */
  size_t num_tokens;
  int32_t finish_reason;     /* a pagemill_finish_reason; the rest is final where it is not 0 */
  int32_t num_cached_tokens; /* prompt tokens that came from the prefix cache */
  int32_t error;             /* a pagemill_status, where finish_reason is PAGEMILL_FINISH_ERROR */
  int32_t stop_token_id;     /* which of stop_token_ids ended the request; -1 = none did */

  const char* error_message; /* "" where error is 0; valid as long as token_ids */
  double queued_s;           /* submission to the first step that runs it */
  double prefill_s;          /* from there to the first token */
  double decode_s;           /* first token to last token */

  int32_t turn_finished; /* a pagemill_finish_reason: a turn is over, the request awaits input */
  int32_t retry_after_s; /* where error is not 0: when a retry may succeed; 0 = not known */
} pagemill_output;

/* Gauges are of this moment, counters only grow. */
typedef struct pagemill_stats {
  size_t struct_size;
  uint64_t num_running;     /* gauge: requests that hold a slot */
  uint64_t num_waiting;     /* gauge: requests without one */
  uint64_t num_used_blocks; /* gauge: KV blocks that requests hold */
  uint64_t num_blocks;      /* usable KV blocks */

  uint64_t num_unread_outputs; /* gauge: requests with outputs that nobody has read */
  uint64_t num_steps;
  uint64_t num_failed_steps;
  uint64_t num_preemptions;
  uint64_t prefix_cache_query_tokens; /* prompt tokens looked up */
  uint64_t prefix_cache_hit_tokens;   /* of those, found */
  uint64_t prompt_tokens;             /* of requests that started, cached ones included */
  uint64_t generation_tokens;
  uint64_t num_submitted; /* accepted requests */
  uint64_t num_refused;   /* refused by submit */
  uint64_t finished_stop;
  uint64_t finished_length;
  uint64_t finished_abort;
  uint64_t finished_error;
  uint64_t heartbeat;    /* grows with every turn of the engine's loop */
  double progress_age_s; /* how long there has been work and none of it done */

  uint64_t paused; /* gauge: 1 from pagemill_engine_pause to pagemill_engine_resume */
} pagemill_stats;

/* PAGEMILL_ABI_VERSION of the library. */
PAGEMILL_API int32_t pagemill_abi_version(void);
/* The sentence of this thread's last call that failed; "" before the first. Valid until the next
 * call that fails. */
PAGEMILL_API const char* pagemill_last_error(void);

/* Fill in the size, which is sizeof the struct, and the defaults. NULL is ignored. */
PAGEMILL_API void pagemill_engine_options_init(pagemill_engine_options* options,
                                               size_t struct_size);
PAGEMILL_API void pagemill_sampling_params_init(pagemill_sampling_params* params,
                                                size_t struct_size);
PAGEMILL_API void pagemill_request_init(pagemill_request* request, size_t struct_size);
PAGEMILL_API void pagemill_output_init(pagemill_output* output, size_t struct_size);
PAGEMILL_API void pagemill_stats_init(pagemill_stats* stats, size_t struct_size);

PAGEMILL_API pagemill_status pagemill_engine_create(const pagemill_engine_options* options,
                                                    pagemill_engine** engine);
/* Aborts what runs and waits for the step in flight. NULL is ignored. */
PAGEMILL_API void pagemill_engine_destroy(pagemill_engine* engine);

/* Accepts a request, or says why not; of a refused request nothing is heard again. */
PAGEMILL_API pagemill_status pagemill_engine_submit_request(pagemill_engine* engine,
                                                            const pagemill_request* request);
/* The same for a request with nothing but a prompt. */
PAGEMILL_API pagemill_status pagemill_engine_submit(pagemill_engine* engine, uint64_t request_id,
                                                    const int32_t* prompt_token_ids,
                                                    size_t num_prompt_tokens,
                                                    const pagemill_sampling_params* params);
/* Appends input, which is copied, to a request with streaming_input; `part` is a
 * pagemill_input_part. PAGEMILL_NOT_FOUND: there is no such request.
 * PAGEMILL_FAILED_PRECONDITION: its input is complete, it is generating, or the output that ends
 * its last turn has not been read. Waits for the step in flight. */
PAGEMILL_API pagemill_status pagemill_engine_extend(pagemill_engine* engine, uint64_t request_id,
                                                    const int32_t* token_ids, size_t num_tokens,
                                                    int32_t part);
/* Lets a request start that was submitted with starts_held. Others are ignored. */
PAGEMILL_API pagemill_status pagemill_engine_release(pagemill_engine* engine, uint64_t request_id);
/* Ends the request with PAGEMILL_FINISH_ABORT. Unknown and finished ids are ignored. */
PAGEMILL_API pagemill_status pagemill_engine_abort(pagemill_engine* engine, uint64_t request_id);
/* Waits up to timeout_s seconds for news of any request: PAGEMILL_OK, or
 * PAGEMILL_DEADLINE_EXCEEDED. */
PAGEMILL_API pagemill_status pagemill_engine_next(pagemill_engine* engine, double timeout_s,
                                                  pagemill_output* output);
PAGEMILL_API pagemill_status pagemill_engine_stats(const pagemill_engine* engine,
                                                   pagemill_stats* stats);

/* Refuses new requests from now on; those accepted run to their end. Returns at once. */
PAGEMILL_API pagemill_status pagemill_engine_drain(pagemill_engine* engine);
/* Waits up to timeout_s seconds until no accepted request is unfinished: PAGEMILL_OK, or
 * PAGEMILL_DEADLINE_EXCEEDED. */
PAGEMILL_API pagemill_status pagemill_engine_wait_idle(pagemill_engine* engine, double timeout_s);
/* Until pagemill_engine_resume(); `mode` is a pagemill_pause_mode. New requests are accepted and
 * wait. A second call changes the mode. Waits for the step in flight. */
PAGEMILL_API pagemill_status pagemill_engine_pause(pagemill_engine* engine, int32_t mode);
/* Waits up to timeout_s seconds until the pause is complete, so that nothing runs before
 * pagemill_engine_resume(): PAGEMILL_OK, or PAGEMILL_DEADLINE_EXCEEDED. */
PAGEMILL_API pagemill_status pagemill_engine_wait_paused(pagemill_engine* engine, double timeout_s);
PAGEMILL_API pagemill_status pagemill_engine_resume(pagemill_engine* engine);
/* Forgets all cached prefixes, those in KV tiers and connectors too. PAGEMILL_FAILED_PRECONDITION while requests hold blocks. */
PAGEMILL_API pagemill_status pagemill_engine_reset_prefix_cache(pagemill_engine* engine);
/* The same, with requests that run: they are preempted, compute everything again and give the same
 * tokens. */
PAGEMILL_API pagemill_status
pagemill_engine_preempt_and_reset_prefix_cache(pagemill_engine* engine);

#ifdef __cplusplus
}
#endif

#endif /* PAGEMILL_CC_CAPI_PAGEMILL_H_ */
