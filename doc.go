// Package spendonce is the root of a module about secrets that may be spent
// only once. It holds no code: see credstore for a shared OAuth session,
// lockfile for the mutex below it, and cmd/spendonce for the program.
package spendonce
