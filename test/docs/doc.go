// Package docs holds the documents to the code: the examples that the README shows are the ones that compile, and the
// page of limits lists the constants with the values that they have.
package docs
