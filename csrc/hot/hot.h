// For code that ranks run right after a sleep, with nothing in their caches.
#pragma once

/// What is marked lies together in the library. Scattered over it by the order of the sources, the few hundred
/// instructions of a call are on twenty pages, and to find each costs more than to run what is on it.
#define PYC_HOT [[gnu::hot]]
