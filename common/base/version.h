/* The version of all programs, which --version prints; CHANGELOG.md begins with it. */
#ifndef LS_BASE_VERSION_H
#define LS_BASE_VERSION_H

#define LS_VERSION "0.1-dev"

#endif
