"""The pictures of the README: a real server is put under load, watched, recorded, and its recording photographed."""
