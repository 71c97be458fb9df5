// Package sdk holds what we read and write of the providers' forms equal to what their official SDKs read and write.
// It is a module of its own: whoever imports the client gets no SDK.
package sdk
