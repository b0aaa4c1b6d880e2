#pragma once

#include <gtest/gtest.h>

#include "mlxx/base/pch.h"
