// Package archtest holds one test: which package may import which, and who may
// speak to the network. docs/architecture.md says why the arrows run as they do;
// the table in rules_test.go says where they run.
//
// It has no code outside of its tests, and nothing may import it.
package archtest
