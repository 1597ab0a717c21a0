<?php
// A small HTTP service that knows nothing of authentication: it says who calls and what was asked
// for, as JSON. Under CGI and FastCGI, and so in PHP, a header becomes a variable in which every
// character but letters and digits is an underscore: X_Current_User would be this one as well. The
// sidecar removes all of these.
//
//     php -S 127.0.0.1:3000 index.php

/** The user the sidecar vouches for; null where a path needs no login. */
function current_user(): ?array
{
    $header = $_SERVER['HTTP_X_CURRENT_USER'] ?? null;
    return $header === null ? null : json_decode($header, true, flags: JSON_THROW_ON_ERROR);
}

header('Content-Type: application/json');
echo json_encode([
    'service' => 'php',
    'method' => $_SERVER['REQUEST_METHOD'],
    'path' => $_SERVER['REQUEST_URI'],
    'user' => current_user(),
], JSON_THROW_ON_ERROR);
