#pragma once

#include <gtest/gtest.h>

#include "mlxx/core/pch.h"
