//go:build !race

package lockmodel_test

const raceEnabled = false
