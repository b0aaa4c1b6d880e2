// What the loader asks an NVIDIA driver for.

#include <cstddef>
#include <cstring>

#ifndef FAKE_UNMANAGED
#define FAKE_UNMANAGED 0
#endif

extern "C" {

int cuInit(unsigned) {
  return 0;
}
int cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}
int cuDeviceGetCount(int* count) {
  *count = FAKE_DEVICES;
  return 0;
}
int cuDeviceGet(int* device, int index) {
  *device = index;
  return 0;
}
int cuDeviceGetName(char* name, int capacity, int) {
  std::strncpy(name, "Fake GPU", static_cast<size_t>(capacity));
  return 0;
}
int cuDeviceTotalMem_v2(size_t* bytes, int) {
  *bytes = size_t{80} << 30;
  return 0;
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  constexpr int kComputeMajor = 75;
  constexpr int kConcurrentManagedAccess = 89;
  *value = attribute == kComputeMajor ? 9 : 1;
  if (FAKE_UNMANAGED && attribute == kConcurrentManagedAccess) {
    *value = 0;
  }
  return 0;
}

}  // extern "C"
