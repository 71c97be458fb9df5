// Package sim plays.
package sim
