#ifdef FAKE_NOTHING
extern "C" int fake_nothing() {
  return 0;
}
#else
namespace mlx::core {
const char* version() {
  return FAKE_VERSION;
}
}  // namespace mlx::core
#endif
