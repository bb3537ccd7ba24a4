// Package archtest holds the tests of the tree as a whole: which package may import
// which, who may speak to the network, and whether the documents tell of all packages
// and modules. docs/architecture.md says why the arrows run as they do; the table in
// rules_test.go says where they run.
//
// It has no code outside of its tests, and nothing may import it.
package archtest
