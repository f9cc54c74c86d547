#include <immintrin.h>
int f512(void*p){ return _mm512_reduce_add_epi32(_mm512_loadu_si512(p));}
