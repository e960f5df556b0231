/* The standard headers that most files here use. They take longer to compile than the files themselves, so the Makefile
 * precompiles them (every file includes the precompiled header before its own includes). No file relies on that. */
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>
