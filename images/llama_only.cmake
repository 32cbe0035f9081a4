# Included by CMake right after llama-cpp-python's project() line (CMAKE_PROJECT_llama_cpp_INCLUDE).
#
# llama-cpp-python always switches llama.cpp's `common` library on: 57 of 387 build steps, and the slow ones, for a
# library that only llama.cpp's own programs use. A normal variable wins over the cache entry it forces.
set(LLAMA_BUILD_COMMON OFF)
