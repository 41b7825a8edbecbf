// 2^x for x <= 127 without the special function unit: about 2^-22 of itself.
__device__ inline float poly2(float x) {
  x = fmaxf(x, -126.0f);
  const float shifted = x + 12582912.0f;  // x to the nearest integer, in the low bits
  const float f = x - (shifted - 12582912.0f);
  float p = 1.33335581e-3f;
  p = fmaf(p, f, 9.61812911e-3f);
  p = fmaf(p, f, 5.55041087e-2f);
  p = fmaf(p, f, 2.40226507e-1f);
  p = fmaf(p, f, 6.93147181e-1f);
  p = fmaf(p, f, 1.0f);
  return __int_as_float(__float_as_int(p) + (__float_as_int(shifted) << 23));
}
