package requestcmd

// RequestURL is where a request goes.
var RequestURL = requestURL
