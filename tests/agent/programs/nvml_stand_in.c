/* The driver's library with one device, GPU-aaaa: 1200 MHz under a power cap when first asked, 1800 MHz and hot then.
   It does not tell its power limit. With NVML_STAND_IN_HANGS it never answers. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6 };
static int device, clocks, reasons;

int nvmlInitWithFlags(unsigned flags) { (void)flags; return SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) { (void)code; return "stand-in"; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
  if (getenv("NVML_STAND_IN_HANGS")) pause();
  if (strcmp(uuid, "GPU-aaaa")) return NOT_FOUND;
  *handle = &device;
  return SUCCESS;
}
int nvmlDeviceGetClockInfo(void *h, int type, unsigned *mhz) {
  (void)h;
  *mhz = type == 1 ? (clocks++ ? 1800 : 1200) : 7;
  return SUCCESS;
}
int nvmlDeviceGetMaxClockInfo(void *h, int type, unsigned *mhz) { (void)h; (void)type; *mhz = 1980; return SUCCESS; }
int nvmlDeviceGetPowerUsage(void *h, unsigned *mw) { (void)h; *mw = 300000; return SUCCESS; }
int nvmlDeviceGetEnforcedPowerLimit(void *h, unsigned *mw) { (void)h; (void)mw; return NOT_SUPPORTED; }
int nvmlDeviceGetTemperature(void *h, int sensor, unsigned *c) { (void)h; (void)sensor; *c = 61; return SUCCESS; }
/* Of the volatile counters: one uncorrected error, and of corrected ones three more each time. */
int nvmlDeviceGetTotalEccErrors(void *h, int kind, int counter, unsigned long long *count) {
  static unsigned long long corrected = 7;
  (void)h;
  if (counter) return NOT_SUPPORTED;
  *count = kind ? 1 : (corrected += 3);
  return SUCCESS;
}
int nvmlDeviceGetCurrentClocksEventReasons(void *h, unsigned long long *bits) {
  (void)h;
  *bits = reasons++ ? 0x41 : 0x4;
  return SUCCESS;
}
