package credcmd

// RequestURL is where a request goes.
var RequestURL = requestURL
