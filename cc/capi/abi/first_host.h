/* File: cc/capi/abi/first_host.h
 * A host that was built against the first header of ABI version 1, kept to see that today's library
 * still serves it. */
#ifndef PAGEMILL_CC_CAPI_ABI_FIRST_HOST_H_
#define PAGEMILL_CC_CAPI_ABI_FIRST_HOST_H_

#ifdef __cplusplus
extern "C" {
#endif

/* Generates 8 greedy tokens after `token` with the program at `path`. NULL, or what went wrong. */
const char* FirstHostGenerate(const char* path, int token, int tokens[8]);

#ifdef __cplusplus
}
#endif

#endif /* PAGEMILL_CC_CAPI_ABI_FIRST_HOST_H_ */
