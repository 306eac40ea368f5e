package oauthflow_test

func refreshChild() error { return nil }
func legsChild() error    { return nil }
