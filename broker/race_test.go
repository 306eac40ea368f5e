//go:build linux && race

package broker_test

const raceDetector = true
