// Package tables reads our tables with parquet-go.
package tables
